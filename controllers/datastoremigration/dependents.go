package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/copier"
)

// dependents does for objects outside Calico what owners does for v1. Their kinds are on record with the state before
// the first one is touched, so that they are found again.
type dependents struct {
	copiers

	owners *owners
}

const (
	// DetachAction is the name of the action whose rights are to read everything.
	DetachAction = "DetachDependents"
	// kindsAtATime bounds the lists of foreign kinds under way.
	kindsAtATime = 4
)

// detachRights is to list everything, which an installation need not grant: then only what may be listed is looked at.
// To patch what is found, which may be anything, is the chart's to grant. Whoever detaches may attach again.
func detachRights() []rbacv1.PolicyRule { return []rbacv1.PolicyRule{rbac.Rule("list", "*", "*")} }

// listable parts kinds into those that this account may list, and the names of the others. To ask leaves no refusals in
// the audit log, as a list of each would.
func (s *dependents) listable(ctx context.Context, kinds []foreignKind) (may []foreignKind, unlisted []string, err error) {
	missing, err := rbac.Missing(ctx, s.client, rbac.Flatten(DetachAction, detachRights()...))
	if err != nil || len(missing) == 0 {
		return kinds, nil, err
	}
	needs := make([]rbac.Need, len(kinds))
	for i, kind := range kinds {
		needs[i] = rbac.Need{Group: kind.Group, Resource: kind.plural, Verb: "list"}
	}
	if missing, err = rbac.Missing(ctx, s.client, needs); err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		name := schema.GroupResource{Group: kind.Group, Resource: kind.plural}
		if slices.ContainsFunc(missing, func(n rbac.Need) bool { return n.Group == name.Group && n.Resource == name.Resource }) {
			unlisted = append(unlisted, name.String())
		} else {
			may = append(may, kind)
		}
	}
	return may, unlisted, nil
}

// foreignKind is a kind outside Calico whose objects may have owners.
type foreignKind struct {
	schema.GroupVersionKind
	plural string
}

// foreignKinds are all that the API server tells of, and the groups that it could
// not tell of.
func (s *dependents) foreignKinds() (kinds []foreignKind, hidden []string, err error) {
	lists, err := s.discovery.ServerPreferredResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return nil, nil, fmt.Errorf("ask which kinds there are: %w", err)
	}
	for gv := range failed {
		if !isCalico(gv.Group) {
			hidden = append(hidden, gv.String())
		}
	}
	slices.Sort(hidden)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || isCalico(gv.Group) {
			continue
		}
		for _, r := range list.APIResources {
			if mayHaveOwners(gv.Group, r) {
				kinds = append(kinds, foreignKind{gv.WithKind(r.Kind), r.Name})
			}
		}
	}
	return kinds, hidden, nil
}

// mayHaveOwners leaves out what cannot be read or changed, and what belongs to nobody:
// events, and Endpoints, which belong to a Service by their name.
func mayHaveOwners(group string, r metav1.APIResource) bool {
	ownerless := r.Kind == "Event" && group == eventsv1.GroupName || group == corev1.GroupName && (r.Kind == "Event" || r.Kind == "Endpoints")
	return !ownerless && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "patch")
}

func isCalico(group string) bool { return group == resources.V1Group || group == resources.V3Group }

// dependentsFound is what was found, and what could not be looked at.
type dependentsFound struct {
	found []*copier.Meta
	// needs are the rights to patch them, for the objects that each is about.
	needs []rbac.Need
	// unlisted are resources that may not be listed, and hidden groups that nobody knows the kinds of.
	unlisted, hidden []string
}

func (d dependentsFound) unseen() []string { return slices.Concat(d.unlisted, d.hidden) }

// findDependents lists the objects outside Calico that refer to a Calico object.
func (s *dependents) findDependents(ctx context.Context, c *copier.Copier) (dependentsFound, error) {
	kinds, hidden, err := s.foreignKinds()
	if err != nil {
		return dependentsFound{}, err
	}
	kinds, unlisted, err := s.listable(ctx, kinds)
	if err != nil {
		return dependentsFound{}, err
	}
	all := dependentsFound{unlisted: unlisted, hidden: hidden}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(kindsAtATime)
	for _, kind := range kinds {
		group.Go(func() error {
			found, err := c.Find(ctx, kind.GroupVersionKind, func(obj *copier.Meta) bool {
				calico, _ := resources.SplitOwners(obj.OwnerReferences)
				return len(calico) > 0
			})
			mu.Lock()
			defer mu.Unlock()
			switch name := (schema.GroupResource{Group: kind.Group, Resource: kind.plural}).String(); {
			case apierrs.IsForbidden(err):
				all.unlisted = append(all.unlisted, name)
			case isUnserved(err): // its CRD may have gone a moment ago; what is not told of any more is not asked for again
				all.hidden = append(all.hidden, name)
			case err != nil:
				return err
			}
			for _, obj := range found {
				all.needs = append(all.needs, rbac.Need{Group: kind.Group, Resource: kind.plural, Namespace: obj.Namespace, Verb: "patch", For: []string{nameOf(obj)}})
			}
			all.found = append(all.found, found...)
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(all.unlisted)
	slices.Sort(all.hidden)
	all.needs = rbac.Union(all.needs)
	slices.SortFunc(all.found, func(a, b *copier.Meta) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return all, err
}

// isUnserved tells that the API server does not serve a kind, or not the list of it: what there is of it is not known.
func isUnserved(err error) bool {
	return apierrors.Classify(err) == apierrors.NotFound || apierrs.IsMethodNotSupported(err)
}

// nameOf is an object in words: "ConfigMap shop/settings".
func nameOf(obj *copier.Meta) string {
	return obj.Kind + " " + client.ObjectKeyFromObject(obj).String()
}

// detachDependents takes references to Calico objects off all other objects: the
// garbage collector would delete these when Calico's get other UIDs. Which kinds have
// any is on record before the first is touched, so that they are found again.
func (s *dependents) detachDependents(ctx context.Context, sc *scope) (outputs, error) {
	c := s.copier(sc.Object)
	all, err := s.findDependents(ctx, c)
	if err != nil {
		return nil, err
	}
	waived := isWaived(sc.Object, dependentsCheck)
	if unseen := v1alpha1.Shorten(strings.Join(all.unseen(), ", "), exampleLength); unseen != "" {
		if !waived {
			return nil, fmt.Errorf("objects that depend on Calico's may be hidden in what cannot be listed: %s", unseen)
		}
		sc.Warn("DependentsHidden", "objects that depend on Calico's are not looked for in what cannot be listed: %s", unseen)
	}
	if err := recordKinds(ctx, sc, all.found); err != nil {
		return nil, err
	}
	kept, err := editEach(ctx, c, all.found, detachBy(sc.Object.UID))
	if err != nil || len(kept) == 0 {
		return nil, err
	}
	if !waived {
		return nil, errors.Join(kept...)
	}
	sc.Warn("DependentsInDanger", "the garbage collector may delete what this account may not detach from its owner: %s", strings.Join(examples(kept, error.Error), "; "))
	return nil, nil
}

// editEach returns what may not be changed apart from other errors.
func editEach(ctx context.Context, c *copier.Copier, objs []*copier.Meta, change func(*copier.Meta) error) (forbidden []error, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(kindsAtATime)
	for _, obj := range objs {
		group.Go(func() error {
			err := c.Edit(ctx, obj, change)
			if apierrs.IsForbidden(err) {
				mu.Lock()
				defer mu.Unlock()
				forbidden = append(forbidden, err)
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	return forbidden, err
}

// detachedKindsKey is where the state has the kinds, as apiVersion/Kind and separated by
// commas, whose objects have notes of detached owners.
const detachedKindsKey = "detachedKinds"

// recordKinds notes with the state where notes are about to be left.
func recordKinds(ctx context.Context, sc *scope, objs []*copier.Meta) error {
	kinds := recordedKinds(sc)
	for _, obj := range objs {
		kinds = append(kinds, obj.APIVersion+"/"+obj.Kind)
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.Sort(kinds)
	return sc.Save(ctx, detachedKindsKey, strings.Join(slices.Compact(kinds), ","))
}

func recordedKinds(sc *scope) []string {
	return strings.FieldsFunc(sc.Saved(detachedKindsKey), func(r rune) bool { return r == ',' })
}

// attachDependents puts the references back: to the old owners, or to those that took
// their places. What cannot be read stays on record.
func (s *dependents) attachDependents(ctx context.Context, sc *scope) (outputs, error) {
	c := s.copier(sc.Object)
	detached, unread, err := s.detachedDependents(ctx, sc, c)
	if err != nil {
		return nil, err
	}
	if len(detached) > 0 {
		rewrite, err := s.ownersNow(ctx, sc, c)
		if err != nil {
			return nil, err
		}
		if err := c.EditAll(ctx, detached, attachTo(sc.Object.UID, rewrite)); err != nil {
			return nil, err
		}
	}
	if err := sc.Save(ctx, detachedKindsKey, strings.Join(unread, ",")); err != nil || len(unread) == 0 {
		return nil, err
	}
	left := v1alpha1.Shorten(strings.Join(unread, ", "), exampleLength)
	if !sc.Gone() && !isWaived(sc.Object, dependentsCheck) {
		return nil, fsm.Wait("references to owners in Calico were taken off objects that the API server does not serve now, and stay off: %s. Bring back what serves them; or, if they are gone for good, set the annotation %s on this object",
			left, waiverFor(sc.Object, dependentsCheck))
	}
	sc.Warn("DependentsLeft", "references to owners in Calico stay off objects that the API server does not serve: %s; each has them in its annotation %s", left, migrationv1.AnnotationDetachedOwners)
	return nil, nil
}

// detachedDependents finds the objects that bear notes. unread are kinds, as they are on record, of which nothing is known
// since the API server does not serve them, in whatever version.
func (s *dependents) detachedDependents(ctx context.Context, sc *scope, c *copier.Copier) (all []*copier.Meta, unread []string, err error) {
	texts := recordedKinds(sc)
	recorded := len(texts) > 0
	if !recorded {
		// Nothing was detached, or the state was lost: then it may be any kind.
		kinds, _, err := s.foreignKinds()
		if err != nil {
			return nil, nil, err
		}
		if kinds, _, err = s.listable(ctx, kinds); err != nil { // what may not be listed was not detached
			return nil, nil, err
		}
		for _, kind := range kinds {
			texts = append(texts, kind.GroupVersion().String()+"/"+kind.Kind)
		}
	}
	for _, text := range texts {
		i := strings.LastIndex(text, "/")
		if i < 0 {
			continue
		}
		found, err := s.findInAnyVersion(ctx, c, schema.FromAPIVersionAndKind(text[:i], text[i+1:]), detachedBy(sc.Object.UID))
		switch {
		case isUnserved(err):
			unread = append(unread, text)
		case err != nil && (recorded || !apierrs.IsForbidden(err)):
			return nil, nil, err
		}
		all = append(all, found...)
	}
	return all, unread, nil
}

// findInAnyVersion finds objects of a kind also where the version of it is not served any more: they are there in another one.
func (s *dependents) findInAnyVersion(ctx context.Context, c *copier.Copier, kind schema.GroupVersionKind, match func(*copier.Meta) bool) ([]*copier.Meta, error) {
	found, err := c.Find(ctx, kind, match)
	if !isUnserved(err) {
		return found, err
	}
	served, _, asking := s.foreignKinds()
	if asking != nil {
		return nil, asking
	}
	for _, other := range served {
		if other.GroupKind() == kind.GroupKind() && other.Version != kind.Version {
			return c.Find(ctx, other.GroupVersionKind, match)
		}
	}
	return nil, err
}

// ownersNow waits until the old owners may be referred to again, or finds the new
// ones: a reference to one that is not there any more is left off.
func (s *dependents) ownersNow(ctx context.Context, sc *scope, c *copier.Copier) (func([]metav1.OwnerReference) []metav1.OwnerReference, error) {
	if sc.With.String("owners", "v1") != "v3" {
		return nil, s.owners.awaitOwners(ctx, sc)
	}
	resolve, err := c.Owners(ctx)
	if err != nil {
		return nil, err
	}
	return func(calico []metav1.OwnerReference) []metav1.OwnerReference {
		resolved, unknown := resolve(calico)
		for _, ref := range unknown {
			sc.Warn("OwnerMissing", "%s %s is not in v3: a reference to it (uid %s) is left off", ref.Kind, ref.Name, ref.UID)
		}
		return resolved
	}, nil
}

// dependentsCheck is the id of the check about objects outside Calico.
const dependentsCheck = "dependents"

// patchValue is where the chart lists what may be patched.
const patchValue = "controllers.datastoremigration.dependents.patch"

// canBeProtected finds what would be in the garbage collector's reach during a migration,
// and what may hide it.
func (s *dependents) canBeProtected() check.Check {
	return check.Check{ID: "dependents", Waivable: true, Title: "objects outside Calico that Calico's own can be protected", Run: func(ctx context.Context) ([]check.Finding, error) {
		all, err := s.findDependents(ctx, s.copier(&migration{}))
		if err != nil {
			return nil, err
		}
		var findings []check.Finding
		if len(all.unlisted) > 0 {
			findings = append(findings, check.Finding{Level: check.Failure, // nobody but a person can tell whether something is lost
				Message: fmt.Sprintf("this account may not list *.* (needed by %s): what belongs to an object of Calico is not looked for in these, and the garbage collector may delete it during a migration: %s",
					DetachAction, v1alpha1.Shorten(strings.Join(all.unlisted, ", "), exampleLength)),
				Remedy: "see whether there is anything (kubectl phasegate plan, as an administrator); if so, grant it (Helm: controllers.datastoremigration.dependents.enabled=true)"})
		}
		for _, group := range all.hidden {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("the API server cannot list what is in %s, where something may depend on Calico's objects", group),
				Remedy:  "repair what serves it, or remove its APIService"})
		}
		missing, err := rbac.Missing(ctx, s.client, all.needs)
		for _, need := range missing {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("this account may not %s (needed by %s), and so not protect what depends on Calico's objects: %s",
					need, DetachAction, strings.Join(examples(need.For, asIs), ", ")),
				Remedy: fmt.Sprintf("add {apiGroups: [%q], resources: [%s]} to the Helm value %s", need.Group, need.Resource, patchValue)})
		}
		return append(findings, s.owners.tryDetach(ctx, all.found)...), err
	}}
}
