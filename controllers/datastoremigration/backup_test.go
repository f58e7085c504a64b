package datastoremigration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/backupstore"
	"github.com/phasegate/phasegate/controllers/runner"
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

// withoutRace skips a test of many backups, which are made by one goroutine, with the race detector; make test
// runs those with Backup or BackUp in their names without it, too.
func withoutRace(t *testing.T) {
	t.Helper()
	if name := strings.ToLower(t.Name()); !strings.Contains(name, "backup") {
		t.Fatalf("make test does not run %s without the race detector", t.Name())
	}
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
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.dm), dm); err != nil {
		t.Fatal(err)
	}
	_, err := runner.Once(t.Context(), c, dm, actionOn(allMayBeDone(c), action), with, clock.RealClock{})
	return err
}

func (b *backedUp) secrets(t *testing.T) map[string]map[string]string {
	t.Helper()
	list := &corev1.SecretList{}
	if err := b.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
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

// Whoever dies at any write, or does not get the answer, leaves what the next try makes complete.
func TestBackUpSurvivesCrashes(t *testing.T) {
	withoutRace(t)
	const pools = 7
	whole := newBackedUp(t, pools)
	if err := whole.backUp(t, whole.WithWatch, nil); err != nil {
		t.Fatal(err)
	}
	want := whole.secrets(t)
	if len(want) < 4 {
		t.Fatalf("%d Secrets are too few to try crashes between them", len(want))
	}
	died := errors.New("died")
	for k := 1; k <= len(want); k++ {
		for _, after := range []bool{false, true} {
			b, n := newBackedUp(t, pools), 0
			err := b.backUp(t, interceptor.NewClient(b.WithWatch, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if n++; n != k {
						return c.Create(ctx, obj, opts...)
					}
					if after {
						return errors.Join(died, c.Create(ctx, obj, opts...))
					}
					return died
				},
			}), nil)
			if !errors.Is(err, died) {
				t.Fatalf("write %d: %v, want it to fail", k, err)
			}
			kept := b.secrets(t)
			if err := b.backUp(t, b.WithWatch, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, b.secrets(t)); diff != "" {
				t.Errorf("a crash at write %d (after it: %t, %d Secrets were there) leads elsewhere:\n%s", k, after, len(kept), diff)
			}
		}
	}
}

func TestBackUpHoldsAll(t *testing.T) {
	b := newBackedUp(t, 12)
	if err := b.backUp(t, b.WithWatch, nil); err != nil {
		t.Fatal(err)
	}
	secrets := b.secrets(t)
	var lines []string
	for n := 1; n < len(secrets); n++ {
		packed, err := gzip.NewReader(strings.NewReader(secrets[fmt.Sprintf("to-v3-v1-backup-%d", n)][backupstore.PartKey]))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			obj := &unstructured.Unstructured{}
			if err := json.Unmarshal(line, &obj.Object); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, obj.GetKind()+" "+obj.GetName())
		}
	}
	want := []string{"CustomResourceDefinition " + poolCRD}
	for _, i := range []int{0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9} { // the order of the API server
		want = append(want, fmt.Sprintf("IPPool pool-%d", i))
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	index := backupstore.Index{}
	if err := json.Unmarshal([]byte(secrets[fmt.Sprintf("to-v3-v1-backup-%d", len(secrets))][backupstore.IndexKey]), &index); err != nil {
		t.Fatal(err)
	}
	index.Parts = nil
	if diff := cmp.Diff(backupstore.Index{Migration: "to-v3", UID: "u-1", CRDs: []string{poolCRD}, Objects: map[string]int{"IPPool": 12}}, index); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBackUpAgain(t *testing.T) {
	withoutRace(t)
	secret := func(n int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: fmt.Sprintf("to-v3-v1-backup-%d", n)}}
	}
	cases := map[string]struct {
		why  string
		with fsm.Params
		// meanwhile is what happens between the first backup and the second.
		meanwhile func(t *testing.T, b *backedUp)
		same      bool // as the first one
		writes    int
		err       string
	}{
		"nothing happened": {why: "there is nothing to write", same: true, meanwhile: func(*testing.T, *backedUp) {}},
		"a part is gone": {why: "it is written again, the others stay", same: true, writes: 1,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), secret(2))) }},
		"a part is another": {why: "it is replaced", same: true, writes: 1, meanwhile: func(t *testing.T, b *backedUp) {
			s := secret(1)
			must(t, b.Get(t.Context(), client.ObjectKeyFromObject(s), s))
			s.Data[backupstore.PartKey] = []byte("torn")
			must(t, b.Update(t.Context(), s))
		}},
		"v1 has less": {why: "clean-up waited, somebody removed objects: parts and index are new, what is too much goes", writes: 2, meanwhile: func(t *testing.T, b *backedUp) {
			for i := 2; i < 12; i++ {
				must(t, b.Delete(t.Context(), pool(fmt.Sprintf("pool-%d", i), "")))
			}
		}},
		"the deletion has begun": {why: "a backup of what is left would replace the one that is whole", same: true, meanwhile: func(t *testing.T, b *backedUp) {
			must(t, b.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD}}))
			for i := range 12 {
				must(t, b.Delete(t.Context(), pool(fmt.Sprintf("pool-%d", i), "")))
			}
		}},
		"another migration of the same name": {why: "its backup may be all that is left of it", same: true, err: "belongs to another migration",
			meanwhile: func(t *testing.T, b *backedUp) {
				must(t, b.Delete(t.Context(), b.dm))
				b.dm = &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u-2"}}
				must(t, b.Create(t.Context(), b.dm.DeepCopy()))
			}},
		"a typing error": {why: "it is not taken for None", with: fsm.Params{"to": "none"}, same: true, err: "use Secrets or None", meanwhile: func(*testing.T, *backedUp) {}},
		"not wanted":     {why: "v1 has changed, nobody cares", with: fsm.Params{"to": "None"}, same: true, meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), pool("pool-1", ""))) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackedUp(t, 12)
			must(t, b.backUp(t, b.WithWatch, nil))
			first := b.secrets(t)
			c.meanwhile(t, b)
			writes := 0
			err := b.backUp(t, interceptor.NewClient(b.WithWatch, interceptor.Funcs{
				Create: func(ctx context.Context, cl client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					writes++
					return cl.Create(ctx, obj, opts...)
				},
			}), c.with)
			if said := fmt.Sprint(err); c.err == "" && err != nil || !strings.Contains(said, c.err) {
				t.Fatalf("got error %v, want %q: %s", err, c.err, c.why)
			}
			if diff := cmp.Diff(first, b.secrets(t)); (diff == "") != c.same || writes != c.writes {
				t.Errorf("%d writes, want %d; the same: %t, want %t: %s", writes, c.writes, diff == "", c.same, c.why)
			}
		})
	}
}

// No v1 CRD goes without the backup that was wanted, whatever has become of that since.
func TestNothingGoesWithoutItsBackup(t *testing.T) {
	withoutRace(t)
	part := func(n int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: fmt.Sprintf("to-v3-v1-backup-%d", n)}}
	}
	loseCreates := func(c client.WithWatch) client.WithWatch {
		return interceptor.NewClient(c, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return errors.New("request timed out")
			},
		})
	}
	cases := map[string]struct {
		why       string
		with      fsm.Params // of the backup
		meanwhile func(t *testing.T, b *backedUp)
		first     string // what the first try to delete says; it deletes nothing then
		says      string // what the next one says; empty: the CRD is gone
		objects   int    // in the backup then; 0: there is none
	}{
		"nothing happened": {why: "there is nothing to do but to delete", objects: 7, meanwhile: func(*testing.T, *backedUp) {}},
		"a write fails": {why: "v1 has changed, and the parts are written anew; half of them is no backup", first: "request timed out", objects: 6,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), pool("pool-1", ""))) }},
		"somebody deletes a part": {why: "it is written again", objects: 7,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), part(1))) }},
		"somebody deletes a part of what was whole": {why: "the deletion may have begun: what is left may be the last", says: "bring back the Secrets in namespace calico-system with the label migration.projectcalico.org/backup-of=to-v3",
			meanwhile: func(t *testing.T, b *backedUp) {
				b.onRecord(t, backupWhole)
				must(t, b.Delete(t.Context(), part(1)))
			}},
		"none is wanted": {why: "somebody has said so", with: fsm.Params{"to": "None"}, meanwhile: func(*testing.T, *backedUp) {}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackedUp(t, 7)
			must(t, b.Create(t.Context(), v3PoolCRD(time.Now())))
			b.note(t, migrationv1.AnnotationWaive, waiveV1Changed+"@u-1")
			must(t, b.backUp(t, b.WithWatch, c.with))
			c.meanwhile(t, b)
			there := func() bool {
				return b.Get(t.Context(), client.ObjectKey{Name: poolCRD}, &apiextensionsv1.CustomResourceDefinition{}) == nil
			}
			if c.first != "" {
				if err := b.run(t, loseCreates(b.WithWatch), CleanUpAction, nil); !strings.Contains(fmt.Sprint(err), c.first) || !there() {
					t.Fatalf("the first try says %v, want %q; the CRD is there: %t", err, c.first, there())
				}
			}
			err := b.run(t, b.WithWatch, CleanUpAction, nil)
			if said := fmt.Sprint(err); (err != nil) != (c.says != "") || !strings.Contains(said, c.says) || there() != (c.says != "") {
				t.Fatalf("it says %v, want %q; the CRD is there: %t: %s", err, c.says, there(), c.why)
			}
			index, err := (&backupstore.Store{Client: b.WithWatch, Namespace: "calico-system", Migration: b.dm}).Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			objects := 0
			if index != nil {
				objects = index.Objects["IPPool"]
			}
			if objects != c.objects {
				t.Errorf("the backup has %d pools, want %d: %s", objects, c.objects, c.why)
			}
		})
	}
}

// A page that no API server has answered is no page without objects: a kind that is in no backup is not deleted.
func TestABackupIsWholeOrNone(t *testing.T) {
	answers := map[string]struct {
		why  string
		page func(c client.WithWatch, list *unstructured.UnstructuredList, opts []client.ListOption) error
		says string // the clean-up
	}{
		"not served": {why: "an API server has just started", says: "the server could not find the requested resource",
			page: func(client.WithWatch, *unstructured.UnstructuredList, []client.ListOption) error { return notServed() }},
		"no match": {why: "its discovery is not filled", says: "no matches for kind",
			page: func(client.WithWatch, *unstructured.UnstructuredList, []client.ListOption) error {
				return &meta.NoKindMatchError{GroupKind: v1Pool().GroupKind()}
			}},
		"second page not served": {why: "one of several API servers has just started", says: "the server could not find the requested resource",
			page: func(c client.WithWatch, list *unstructured.UnstructuredList, opts []client.ListOption) error {
				if (&client.ListOptions{}).ApplyOptions(opts).Continue != "" {
					return notServed()
				}
				err := c.List(t.Context(), list, opts...)
				list.SetContinue("2")
				return err
			}},
		"empty": {why: "whatever was answered: v1 was seen to hold more", says: "the backup lacks a part of v1, so nothing more of v1 is deleted: ippools.crd.projectcalico.org, 0 of 3 objects",
			page: func(_ client.WithWatch, list *unstructured.UnstructuredList, _ []client.ListOption) error {
				list.Items = nil
				return nil
			}},
	}
	for name, a := range answers {
		t.Run(name, func(t *testing.T) {
			b := newBackedUp(t, 3)
			must(t, b.Create(t.Context(), v3PoolCRD(time.Now())))
			b.note(t, migrationv1.AnnotationWaive, waiveV1Changed+"@u-1")
			c := interceptor.NewClient(b.WithWatch, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if pools, ok := list.(*unstructured.UnstructuredList); ok && list.GetObjectKind().GroupVersionKind().Kind == "IPPoolList" {
						return a.page(c, pools, opts)
					}
					return c.List(ctx, list, opts...)
				},
			})
			backingUp := b.backUp(t, c, nil)
			err := b.run(t, c, CleanUpAction, nil)
			there := b.Get(t.Context(), client.ObjectKey{Name: poolCRD}, &apiextensionsv1.CustomResourceDefinition{}) == nil
			if !there || !strings.Contains(fmt.Sprint(err), a.says) {
				t.Errorf("the backup says %v, the clean-up %v, want %q; the CRD is there: %t: %s", backingUp, err, a.says, there, a.why)
			}
			must(t, b.run(t, b.WithWatch, CleanUpAction, nil)) // once the API server answers
			index, err := (&backupstore.Store{Client: b.WithWatch, Namespace: "calico-system", Migration: b.dm}).Read(t.Context())
			if err != nil || index == nil || index.Objects["IPPool"] != 3 {
				t.Errorf("the backup in the end: %+v, %v; want 3 pools", index, err)
			}
		})
	}
}
