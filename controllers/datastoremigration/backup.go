package datastoremigration

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/backupstore"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// backups keeps v1 in Secrets of Calico's namespace before it is deleted. They outlive the migration, and nobody
// deletes them but a person; a backup without its index, which is written last, is none.
type backups struct {
	cluster

	namespace string
}

// BackUpAction keeps v1 before CleanUpAction deletes it.
const BackUpAction = "BackUpV1"

const (
	// backupKey is where the state says that v1 is to be kept in Secrets before it is deleted, and how
	// far that is: wanted, or whole from right before the first CRD is deleted.
	backupKey    = "backup"
	backupWanted = "Wanted"
	backupWhole  = "Whole"
	// waiveBackup is what a person waives who does without the rest of a backup that is not whole any more.
	waiveBackup = "v1-backup"
)

func (b *backups) backUpRights() []rbacv1.PolicyRule {
	return grants([]rbacv1.PolicyRule{rbac.Asking}, onSecrets(), b.onV1CRDs("get"), onAllOfV1("list"),
		allOf("list", resources.V1Group, b.registry.All(), (*resources.Kind).V1Plural))
}

// onSecrets are in the Calico namespace only, see Needs.
func onSecrets() []rbacv1.PolicyRule { return rule("get create delete", "", "secrets") }

// backUpV1 writes every v1 object and CRD to Secrets, and reads them back. It may be
// called again: what is written already and right stays, and a backup that is complete
// is left alone once the first CRD has gone, since there would be less in a new one.
func (b *backups) backUpV1(ctx context.Context, sc *scope) (outputs, error) {
	switch to := sc.With.String("to", "Secrets"); to {
	case "None":
		return nil, sc.Save(ctx, backupKey, "")
	case "Secrets":
		return nil, b.backUp(ctx, sc)
	default:
		return nil, fmt.Errorf("parameter to is %q: use Secrets or None", to)
	}
}

// renewBackup brings a backup up to date that may have waited for long, compares it with what v1 was seen to hold, and notes
// that the deletion of these CRDs may begin. Whether one is wanted is on record: what is in the Secrets
// does not tell, since a part may be missing.
func (b *backups) renewBackup(ctx context.Context, sc *scope, goes []kindCRD, held map[string]copier.V1Kind) error {
	if sc.Saved(backupKey) == "" {
		return nil
	}
	if err := b.backUp(ctx, sc); err != nil {
		return err
	}
	if err := b.holdsAll(ctx, sc, goes, held); err != nil {
		return err
	}
	return sc.Save(ctx, backupKey, backupWhole)
}

// holdsAll waits where a backup lacks a CRD that is to be deleted, or has fewer objects of its kind than v1 was seen to
// hold: v1 has changed meanwhile, and the next try writes it anew; or a list was not whole.
func (b *backups) holdsAll(ctx context.Context, sc *scope, goes []kindCRD, held map[string]copier.V1Kind) error {
	index, err := b.store(sc).Read(ctx)
	if err != nil {
		return err
	}
	if index == nil { // it was waived, or something deletes the Secrets
		index = &backupstore.Index{}
	}
	var lacks []string
	for _, crd := range goes {
		has, listed := int64(index.Objects[crd.kind.V1Kind()]), held[crd.kind.Name()].Listed
		if !slices.Contains(index.CRDs, crd.Name) || has < listed {
			lacks = append(lacks, fmt.Sprintf("%s, %d of %d objects", crd.Name, has, listed))
		}
	}
	switch text := strings.Join(examples(lacks, asIs), "; "); {
	case len(lacks) == 0:
		return nil
	case isWaived(sc.Object, waiveBackup):
		sc.Warn("ChecksWarn", "%s: waived: the backup lacks a part of v1: %s", waiveBackup, text)
		return nil
	default:
		return fsm.Wait("the backup lacks a part of v1, so nothing more of v1 is deleted: %s. It is written anew; if this stays, set the annotation %s on this object to go on without that part",
			text, waiverFor(sc.Object, waiveBackup))
	}
}

func (b *backups) store(sc *scope) *backupstore.Store {
	return &backupstore.Store{Client: b.client, Namespace: b.namespace, Migration: sc.Object}
}

func (b *backups) backUp(ctx context.Context, sc *scope) error {
	if err := b.mayKeep(ctx); err != nil {
		return err
	}
	v := b.store(sc)
	done, err := v.Read(ctx)
	if err != nil {
		return err
	}
	whole, err := b.mayHaveBeenWhole(ctx, sc, v)
	if err != nil {
		return err
	}
	if done == nil && whole {
		// What is left of it may be all that there is of CRDs that have gone: it is not written over.
		if isWaived(sc.Object, waiveBackup) {
			sc.Warn("ChecksWarn", "%s: waived: the backup of v1 is not whole any more, and CRDs may have gone", waiveBackup)
			return nil
		}
		return fsm.Wait("the backup of v1 is not whole any more, so nothing more of v1 is deleted: bring back the Secrets in namespace %s with the label %s=%s; or set the annotation %s on this object to go on without a backup",
			v.Namespace, migrationv1.LabelBackupOf, v.Prefix(), waiverFor(sc.Object, waiveBackup))
	}
	if begun, err := b.deletionHasBegun(ctx, done); begun || err != nil {
		return err
	}
	v.Begin = func(ctx context.Context) error { return sc.Save(ctx, backupKey, backupWanted) }
	if sc.Saved(backupKey) == "" {
		if err := v.Begin(ctx); err != nil {
			return err
		}
	}
	return b.writeBackup(ctx, sc, v)
}

// mayHaveBeenWhole tells whether the deletion may have begun on the strength of a backup. Where the state was
// lost, any part of one says so.
func (b *backups) mayHaveBeenWhole(ctx context.Context, sc *scope, v *backupstore.Store) (bool, error) {
	if noted := sc.Saved(backupKey); noted != "" || !wasLost(sc.Object) {
		return noted == backupWhole, nil
	}
	return v.Begun(ctx)
}

// writeBackup leaves as it is what was written already and is right, and reads all of it back.
func (b *backups) writeBackup(ctx context.Context, sc *scope, v *backupstore.Store) error {
	w := backupstore.NewWriter(v)
	if err := b.eachOfV1(ctx, func(obj *unstructured.Unstructured) error { return w.Add(ctx, obj) }); err != nil {
		return err
	}
	if w.Index.Empty() {
		return nil
	}
	sc.Report(func(dm *migration) { dm.Status.Message = "Writing the backup of v1" })
	if err := w.Finish(ctx); err != nil {
		return err
	}
	written, err := v.Read(ctx)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(written, &w.Index) {
		return fmt.Errorf("the backup in namespace %s does not hold what was written to it: see who changes Secrets with the label %s=%s", v.Namespace, migrationv1.LabelBackupOf, v.Prefix())
	}
	return nil
}

// mayKeep waits for the rights to Secrets, which may be granted as late as this.
func (b *backups) mayKeep(ctx context.Context) error {
	needs := rbac.Flatten(BackUpAction, onSecrets()...)
	for i := range needs {
		needs[i].Namespace = b.namespace
	}
	missing, err := rbac.Missing(ctx, b.client, needs)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fsm.Wait("the backup cannot be written, so no v1 CRD is deleted: this account may not %s. %s, or do without a backup (step %s of the machine, to: None)",
		missing[0], grantCleanUp, BackUpAction)
}

// deletionHasBegun tells whether a CRD of a complete backup has gone since.
func (b *backups) deletionHasBegun(ctx context.Context, done *backupstore.Index) (bool, error) {
	if done == nil {
		return false, nil
	}
	for _, name := range done.CRDs {
		crd, err := b.crd(ctx, name)
		if err != nil {
			return false, err
		}
		if crd == nil || !crd.DeletionTimestamp.IsZero() {
			return true, nil
		}
	}
	return false, nil
}

// eachOfV1 streams the CRDs of the registry's kinds, then all objects of the v1 group,
// also those that no entry covers or that a selector leaves out. Each kind is listed whole, or it is an error: one
// without a CRD is not listed.
func (b *backups) eachOfV1(ctx context.Context, do func(*unstructured.Unstructured) error) error {
	foreign, err := b.foreignV1(ctx)
	if err != nil {
		return err
	}
	var kinds []*resources.Kind
	for _, kind := range b.registry.All() {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: crdGroup, Version: "v1", Kind: "CustomResourceDefinition"})
		crd, err := read(ctx, b.client, byName(kind.V1CRDName()), crd, "CRD "+kind.V1CRDName())
		if err != nil {
			return err
		}
		if crd == nil {
			continue
		}
		kinds = append(kinds, kind)
		delete(crd.Object, "status")
		if err := do(crd); err != nil {
			return err
		}
	}
	for _, kind := range kinds {
		if err := b.eachOf(ctx, kind.V1GVK(), kind.PageSize(), do); err != nil {
			return err
		}
	}
	for _, plural := range slices.Sorted(maps.Keys(foreign)) {
		if err := b.eachOf(ctx, foreign[plural], metadataPage, do); err != nil {
			return err
		}
	}
	return nil
}

// eachOf streams the objects of a kind.
func (b *backups) eachOf(ctx context.Context, gvk schema.GroupVersionKind, pageSize int64, do func(*unstructured.Unstructured) error) error {
	page := &unstructured.UnstructuredList{}
	return b.eachPage(ctx, gvk, page, pageSize, func() error {
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
