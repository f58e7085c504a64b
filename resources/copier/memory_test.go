package copier

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// BenchmarkMemory is what a Copier keeps of each object at its peak, in bytes: a manager may use 256 MiB,
// pages and requests in flight included, for 100,000 objects.
func BenchmarkMemory(b *testing.B) {
	const objects = 100_000
	for name, fill := range map[string]func(n int) any{
		"Index":         func(n int) any { return filledIndex(n) },
		"EqualityCache": func(n int) any { return filledProofs(n) },
		"List":          func(n int) any { return filledList(n) },
		"Followed":      filledFollowed,
	} {
		b.Run(name, func(b *testing.B) {
			var before, after runtime.MemStats
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				kept := fill(objects)
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(kept)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/objects, "B/object")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func uidOf(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n)) }

// nameOf is as long as that of an IPAMHandle of a pod.
func nameOf(n int) client.ObjectKey {
	return client.ObjectKey{Name: fmt.Sprintf("k8s-pod-network.%s%012x", strings.Repeat("0", 52), n)}
}

func filledIndex(n int) *index {
	entries := map[client.ObjectKey]*entry{}
	for i := range n {
		entries[nameOf(i)] = &entry{uid: uidOf(i), id: idOf(uidOf(i)), version: uint64(i), copied: fmt.Sprint(i), ours: true}
	}
	return newIndex(entries)
}

func filledProofs(n int) *proofs {
	p := newProofs(nil)
	for i := range n {
		p.prove(&resources.Converted{V1UID: uidOf(i), V1Version: fmt.Sprint(i + 1)}, digest{}, uidOf(n+i), uint64(i+1))
	}
	return p
}

func filledList(n int) (all []*v1Object) {
	for i := range n {
		all = append(all, &v1Object{key: nameOf(i), id: idOf(uidOf(i)), version: uint64(i)})
	}
	return all
}

// filledFollowed is a kind that is followed, as it is looked at under the lock.
func filledFollowed(n int) any {
	f := New(resources.Default(), nil, "me").newWatched(resources.Default().Kinds()[0])
	for i := range n {
		version := fmt.Sprint(i + 1)
		v1 := &Meta{ObjectMeta: metav1.ObjectMeta{Name: nameOf(i).Name, UID: uidOf(i), ResourceVersion: version}}
		f.v1.see(watch.Added, v1)
		f.v3.see(watch.Added, &Meta{ObjectMeta: metav1.ObjectMeta{Name: nameOf(i).Name, UID: uidOf(n + i), ResourceVersion: fmt.Sprint(n + i + 1),
			Annotations: map[string]string{resources.CopiedVersionAnnotation: fmt.Sprint(i + 1), resources.MigratedByAnnotation: "me"}}})
	}
	return []any{f, listOf(f.v1), indexOf(f.v3)}
}
