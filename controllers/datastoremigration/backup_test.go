package datastoremigration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/controllers/datastoremigration/backupstore"
	"github.com/phasegate/phasegate/fsm"
)

// Whoever dies at any write, or does not get the answer, leaves what the next try makes complete.
func TestBackUpSurvivesCrashes(t *testing.T) {
	withoutRace(t)
	const pools = 7
	whole := newBackedUp(t, pools)
	must(t, whole.backUp(t, whole.WithWatch, nil))
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
			must(t, b.backUp(t, b.WithWatch, nil))
			if diff := cmp.Diff(want, b.secrets(t)); diff != "" {
				t.Errorf("a crash at write %d (after it: %t, %d Secrets were there) leads elsewhere:\n%s", k, after, len(kept), diff)
			}
		}
	}
}

func TestBackUpHoldsAll(t *testing.T) {
	b := newBackedUp(t, 12)
	must(t, b.backUp(t, b.WithWatch, nil))
	secrets := b.secrets(t)
	var lines []string
	for n := 1; n < len(secrets); n++ {
		packed, err := gzip.NewReader(strings.NewReader(secrets[fmt.Sprintf("to-v3-v1-backup-%d", n)][backupstore.PartKey]))
		must(t, err)
		text, err := io.ReadAll(packed)
		must(t, err)
		for line := range bytes.Lines(text) {
			obj := &unstructured.Unstructured{}
			must(t, json.Unmarshal(line, &obj.Object))
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
	must(t, json.Unmarshal([]byte(secrets[fmt.Sprintf("to-v3-v1-backup-%d", len(secrets))][backupstore.IndexKey]), &index))
	index.Parts = nil
	if diff := cmp.Diff(backupstore.Index{Migration: "to-v3", UID: "u-1", CRDs: []string{poolCRD}, Objects: map[string]int{"IPPool": 12}}, index); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

func TestBackUpAgain(t *testing.T) {
	withoutRace(t)
	cases := map[string]struct {
		why  string
		with fsm.Params
		// meanwhile is what happens between the first backup and the second.
		meanwhile func(t *testing.T, b *backedUp)
		same      bool // as the first one
		writes    int
		err       string
	}{
		"nothing happened": {why: "there is nothing to write", same: true},
		"a part is gone": {why: "it is written again, the others stay", same: true, writes: 1,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), part(2))) }},
		"a part is another": {why: "it is replaced", same: true, writes: 1, meanwhile: func(t *testing.T, b *backedUp) {
			s := part(1)
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
		"a typing error": {why: "it is not taken for None", with: fsm.Params{"to": "none"}, same: true, err: "use Secrets or None"},
		"not wanted":     {why: "v1 has changed, nobody cares", with: fsm.Params{"to": "None"}, same: true, meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), pool("pool-1", ""))) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackedUp(t, 12)
			must(t, b.backUp(t, b.WithWatch, nil))
			first := b.secrets(t)
			if c.meanwhile != nil {
				c.meanwhile(t, b)
			}
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
	cases := map[string]struct {
		why       string
		with      fsm.Params // of the backup
		noted     string     // an annotation that the migration bears from the beginning
		meanwhile func(t *testing.T, b *backedUp)
		lost      bool   // the first try to write is lost, and deletes nothing then
		says      string // what the clean-up says; empty: the CRD is gone
		objects   int    // in the backup then; 0: there is none
	}{
		"nothing happened": {why: "there is nothing to do but to delete", objects: 7},
		"a write fails": {why: "v1 has changed, and the parts are written anew; half of them is no backup", lost: true, objects: 6,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), pool("pool-1", ""))) }},
		"somebody deletes a part": {why: "it is written again", objects: 7,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), part(1))) }},
		"somebody deletes a part of what was whole": {why: "the deletion may have begun: what is left may be the last", says: "bring back the Secrets in namespace calico-system with the label migration.projectcalico.org/backup-of=to-v3",
			meanwhile: func(t *testing.T, b *backedUp) {
				b.onRecord(t, backupWhole)
				must(t, b.Delete(t.Context(), part(1)))
			}},
		"whole, says the object": {why: "an annotation comes from git, from another cluster, and goes with the next apply", noted: "Whole", objects: 7,
			meanwhile: func(t *testing.T, b *backedUp) { must(t, b.Delete(t.Context(), part(1))) }},
		"none is wanted": {why: "somebody has said so", with: fsm.Params{"to": "None"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newCleanable(t, 7)
			if c.noted != "" {
				b.note(t, "migration.projectcalico.org/backup", c.noted)
			}
			must(t, b.backUp(t, b.WithWatch, c.with))
			if c.meanwhile != nil {
				c.meanwhile(t, b)
			}
			if c.lost {
				err := b.run(t, interceptor.NewClient(b.WithWatch, interceptor.Funcs{
					Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
						return errors.New("request timed out")
					},
				}), CleanUpAction, nil)
				if !strings.Contains(fmt.Sprint(err), "request timed out") || !b.stands(t) {
					t.Fatalf("the first try says %v; the CRD is there: %t", err, b.stands(t))
				}
			}
			err := b.run(t, b.WithWatch, CleanUpAction, nil)
			if said := fmt.Sprint(err); (err != nil) != (c.says != "") || !strings.Contains(said, c.says) || b.stands(t) != (c.says != "") {
				t.Fatalf("it says %v, want %q; the CRD is there: %t: %s", err, c.says, b.stands(t), c.why)
			}
			if got := b.kept(t); got != c.objects {
				t.Errorf("the backup has %d pools, want %d: %s", got, c.objects, c.why)
			}
		})
	}
}

// The name of a migration may be longer than that of a label's value.
func TestBackUpNames(t *testing.T) {
	for name, want := range map[string]string{
		"to-v3":                        "to-v3",
		strings.Repeat("a", 253):       strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		store := &backupstore.Store{Migration: &migration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}}
		if got := store.Prefix(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
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
			b := newCleanable(t, 3)
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
			if !b.stands(t) || !strings.Contains(fmt.Sprint(err), a.says) {
				t.Errorf("the backup says %v, the clean-up %v, want %q; the CRD is there: %t: %s", backingUp, err, a.says, b.stands(t), a.why)
			}
			must(t, b.run(t, b.WithWatch, CleanUpAction, nil)) // once the API server answers
			if got := b.kept(t); got != 3 {
				t.Errorf("the backup has %d pools in the end, want 3", got)
			}
		})
	}
}

// A process that dies at its second write gets further with its first one, whatever was noted before.
func TestCleanUpInShortLives(t *testing.T) {
	b := newCleanable(t, 7)
	must(t, b.backUp(t, b.WithWatch, nil))
	died := errors.New("died")
	for range 20 {
		writes := 0
		once := func(write func() error) error {
			if writes++; writes > 1 {
				return died
			}
			return write()
		}
		err := b.run(t, interceptor.NewClient(b.WithWatch, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				return once(func() error { return c.Create(ctx, obj, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return once(func() error { return c.Patch(ctx, obj, patch, opts...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return once(func() error { return c.Delete(ctx, obj, opts...) })
			},
		}), CleanUpAction, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, died) {
			t.Fatal(err)
		}
	}
	t.Error("after 20 processes v1 is still there")
}
