package copier

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// BenchmarkLook is a look at both sides of a kind that is watched, of which everything is proved: what each object
// costs under the lock, by Verify.
func BenchmarkLook(b *testing.B) {
	const objects = 100_000
	kind := resources.Default().Kinds()[0]
	f := filledFollowed(objects).([]any)[0].(*watchedKind)
	known := newProofs(nil)
	for i := range objects {
		known.prove(&resources.Converted{V1UID: uidOf(i), V1Version: fmt.Sprint(i + 1)}, digest{}, uidOf(objects+i), uint64(objects+i+1))
	}
	known.v3 = objects
	for b.Loop() {
		c := New(resources.Default(), nil, "me")
		list := listOf(f.v1)
		c.sides.cache.snapshots.replace(kind, list, true)
		c.sides.v1.snapshot = &c.sides.cache.snapshots
		p := &pairs{asker: asker{c.api, rules{"me", kind, nil}}, from: c.sides, known: known, proved: known.next()}
		s := &comparer{sides: c.sides, content: true, owners: newOwnerMap(), counts: map[string]KindVerification{}}
		k := &kindComparer{pairs: p, all: s, counts: KindVerification{}, mismatches: map[client.ObjectKey]mismatch{}}
		p.live = indexOf(f.v3)
		_, open, err := p.filterProved(b.Context(), visitor{
			proved: func(v1 *v1Object, key client.ObjectKey, live *entry, pr proof) error {
				k.counts.V1++
				k.sum.add(pr.digest)
				k.same(key, live.ours)
				return k.depends(v1.id, dependent{kind: k.kind, key: key, content: v1.content, want: v1.owners, live: *live})
			}})
		if err != nil || len(open) > 0 {
			b.Fatal(err, len(open))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}

// What is proved is taken without a look at what is taken already, as long as nothing is called otherwise in v3.
func TestAnEntryIsTakenOnce(t *testing.T) {
	key := func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
	idx := newIndex(map[client.ObjectKey]*entry{key("a"): {ours: true}, key("b"): {ours: true}, key("c"): {ours: true}, key("d"): {}})
	for _, step := range []struct {
		why      string
		name, v1 string
		sameName bool
		want     bool
	}{
		{"it is called so in v1", "a", "a", true, true},
		{"another v1 object has become it", "a", "default.a", false, false},
		{"it is called otherwise in v1", "b", "default.b", false, true},
		{"two v1 objects cannot both have become it", "b", "b", false, false},
	} {
		if got := idx.takeProved(key(step.name), step.v1, step.sameName); got != step.want {
			t.Errorf("%s is taken: %t, want %t: %s", step.name, got, step.want, step.why)
		}
	}
	if diff := cmp.Diff([][]client.ObjectKey{{key("c")}, {key("d")}}, [][]client.ObjectKey{idx.orphans(), idx.left(false)}); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// An index is what there was when it was made, whatever the watch shows later.
func TestAnIndexStaysAsItWas(t *testing.T) {
	f := New(resources.Default(), nil, "me").newWatched(resources.Default().Kinds()[0])
	obj := func(name string, version string) *Meta {
		return &Meta{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uidOf(1), ResourceVersion: version}}
	}
	f.v3.see(watch.Added, obj("a", "1"))
	first := indexOf(f.v3)
	f.v3.see(watch.Added, obj("b", "2"))
	second := indexOf(f.v3)
	f.v3.see(watch.Modified, obj("a", "3"))
	f.v3.see(watch.Deleted, obj("b", "4"))
	versions := func(i *index) map[string]uint64 {
		out := map[string]uint64{}
		for key, e := range i.entries {
			out[key.Name] = e.version
		}
		return out
	}
	want := []map[string]uint64{{"a": 1}, {"a": 1, "b": 2}, {"a": 3}}
	if diff := cmp.Diff(want, []map[string]uint64{versions(first), versions(second), versions(indexOf(f.v3))}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
