package datastoremigration

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/backupstore"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

const poolCRD = "ippools.crd.projectcalico.org"

// backedUp is a v1 datastore with pools that cannot be compressed, so that a few of
// them are several parts.
type backedUp struct {
	client.WithWatch
	dm *migration
}

func newBackedUp(t *testing.T, pools int) *backedUp {
	t.Helper()
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u-1"}}
	objs := []client.Object{dm, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd"}}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range pools {
		noise := make([]byte, 100<<10)
		for j := range noise {
			noise[j] = byte(random.Uint32())
		}
		objs = append(objs, pool(fmt.Sprintf("pool-%d", i), base64.StdEncoding.EncodeToString(noise)))
	}
	return &backedUp{newFake().WithStatusSubresource(dm).WithObjects(objs...).Build(), dm}
}

// withoutRace skips a test of many backups, which are made by one goroutine, with the race detector; make test runs
// all tests without it.
func withoutRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("one goroutine that compresses: runs without the race detector")
	}
}

func v1Pool() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: resources.V1Group, Version: resources.V1Version, Kind: "IPPool"}
}

func pool(name, noise string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"noise": noise}}}
	u.SetGroupVersionKind(v1Pool())
	u.SetName(name)
	u.SetUID("0e5e3214-5bda-429e-8d53-2f1b77363286")
	return u
}

// backUp runs the step on a client, which may go wrong.
func (b *backedUp) backUp(t *testing.T, c client.WithWatch, with fsm.Params) error {
	t.Helper()
	return b.run(t, c, BackUpAction, with)
}

func (b *backedUp) run(t *testing.T, c client.WithWatch, action string, with fsm.Params) error {
	t.Helper()
	dm := &migration{}
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(b.dm), dm))
	_, err := once(t, allMayBeDone(c), dm, action, with)
	return err
}

// newCleanable is one whose clean-up finds nothing else in its way.
func newCleanable(t *testing.T, pools int) *backedUp {
	t.Helper()
	b := newBackedUp(t, pools)
	must(t, b.Create(t.Context(), v3PoolCRD(time.Now())))
	b.note(t, migrationv1.AnnotationWaive, waiveV1Changed+"@u-1")
	return b
}

// part is a Secret of the backup.
func part(n int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: fmt.Sprintf("to-v3-v1-backup-%d", n)}}
}

// stands tells whether the CRD of v1 is there.
func (b *backedUp) stands(t *testing.T) bool {
	t.Helper()
	return b.Get(t.Context(), client.ObjectKey{Name: poolCRD}, &apiextensionsv1.CustomResourceDefinition{}) == nil
}

// kept is how many pools the backup has; 0: there is none.
func (b *backedUp) kept(t *testing.T) int {
	t.Helper()
	index, err := (&backupstore.Store{Client: b.WithWatch, Namespace: "calico-system", Migration: b.dm}).Read(t.Context())
	must(t, err)
	if index == nil {
		return 0
	}
	return index.Objects["IPPool"]
}

func (b *backedUp) secrets(t *testing.T) map[string]map[string]string {
	t.Helper()
	list := &corev1.SecretList{}
	must(t, b.List(t.Context(), list))
	all := map[string]map[string]string{}
	for _, s := range list.Items {
		all[s.Name] = map[string]string{}
		for key, data := range s.Data {
			all[s.Name][key] = string(data)
			if len(data) > 1<<20 || s.Immutable == nil || !*s.Immutable {
				t.Errorf("Secret %s has %d bytes, immutable is %v", s.Name, len(data), s.Immutable)
			}
		}
	}
	return all
}

// onRecord brings what the state says of the backup to a value.
func (b *backedUp) onRecord(t *testing.T, value string) {
	t.Helper()
	state := onceState(b.dm.UID, backupKey, value)
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(state), state))
	state.Status.Saved[backupKey] = v1alpha1.SavedText(value)
	must(t, b.Update(t.Context(), state))
}

// note sets an annotation of the migration.
func (b *backedUp) note(t *testing.T, key, value string) {
	t.Helper()
	dm := &migration{}
	must(t, b.Get(t.Context(), client.ObjectKeyFromObject(b.dm), dm))
	metav1.SetMetaDataAnnotation(&dm.ObjectMeta, key, value)
	must(t, b.Update(t.Context(), dm))
}
