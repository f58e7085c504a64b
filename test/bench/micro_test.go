package bench

import (
	"testing"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
)

// BenchmarkConvert is what a copy pays for each object besides requests.
func BenchmarkConvert(b *testing.B) {
	eachKind(b, func(b *testing.B, s subject) {
		for b.Loop() {
			if _, err := resources.Convert(s.kind, s.v1, s.schema); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDigest is what the comparison of both sides pays for each object.
func BenchmarkDigest(b *testing.B) {
	eachKind(b, func(b *testing.B, s subject) {
		v3, err := s.convert()
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			resources.Digest(s.kind, s.schema, v3)
		}
	})
}

// BenchmarkEqual is what is paid where an object is there already: it is compared field
// by field, as the API server stores it.
func BenchmarkEqual(b *testing.B) {
	eachKind(b, func(b *testing.B, s subject) {
		v3, err := s.convert()
		if err != nil {
			b.Fatal(err)
		}
		live := v3.DeepCopy()
		for b.Loop() {
			if differences := resources.Diff(s.kind, s.schema, v3, live); len(differences) > 0 {
				b.Fatalf("%v", differences)
			}
		}
	})
}

// eachKind runs a benchmark with one object of each kind of the mix.
func eachKind(b *testing.B, run func(*testing.B, subject)) {
	b.Helper()
	all, err := subjects(fixture.Mix(100))
	if err != nil {
		b.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.kind.Name()] {
			continue
		}
		seen[s.kind.Name()] = true
		b.Run(s.kind.Name(), func(b *testing.B) {
			b.ReportAllocs()
			run(b, s)
		})
	}
}
