package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

func TestWaivers(t *testing.T) {
	failing := func(id string, waivable bool) check.Check {
		return check.Check{ID: id, Waivable: waivable, Run: func(context.Context) ([]check.Finding, error) {
			return []check.Finding{{Level: check.Failure, Message: "bad", Remedy: "mend it"}, {Level: check.Info, Message: "seen"}}, nil
		}}
	}
	const how = ": mend it, or waive it with the annotation migration.projectcalico.org/waive=soft@u on the migration"
	cases := map[string]struct {
		why, waive         string
		blockers, warnings []string
	}{
		"nothing": {why: "a person decides, nobody else", blockers: []string{"soft: bad" + how, "hard: bad: mend it"}},
		"one":     {why: "it is told all the same", waive: "soft@u", blockers: []string{"hard: bad: mend it"}, warnings: []string{"soft: waived: bad: mend it"}},
		"too much": {why: "a migration without the lock is none", waive: "soft@u,hard@u",
			blockers: []string{"hard: bad: mend it",
				`waivers: DatastoreMigration m waives "hard", which is no check that may be waived: correct the annotation migration.projectcalico.org/waive: it may list altered-copies, cni-group, last-copies, soft, v1-backup, v1-changed`},
			warnings: []string{"soft: waived: bad: mend it"}},
		"misspelt": {why: "it would look as if it were waived", waive: "sofd@u",
			blockers: []string{"soft: bad" + how, "hard: bad: mend it",
				`waivers: DatastoreMigration m waives "sofd", which is no check that may be waived: correct the annotation migration.projectcalico.org/waive: it may list altered-copies, cni-group, last-copies, soft, v1-backup, v1-changed`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: c.waive}}}
			s := newEffects(newFake().WithObjects(dm).Build(), Settings{})
			for _, asking := range []*migration{dm, nil} { // nil: kubectl phasegate check
				blockers, warnings, err := check.Split(check.Ask(t.Context(), s.preflight.heedWaivers(asking, []check.Check{failing("soft", true), failing("hard", false)})))
				must(t, err)
				if diff := cmp.Diff([][]string{c.blockers, c.warnings}, [][]string{blockers, slices.Clip(warnings)}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.why, diff)
				}
			}
		})
	}
}

// What admission makes of a copy is rejected, with the fields, unless a person wants it so; nothing is proved then.
func TestAlteredCopies(t *testing.T) {
	altered := []copier.Conflict{{Kind: "GlobalNetworkSet", Name: "a", Cause: copier.CauseAltered,
		Fields: []resources.FieldDiff{{Path: "spec.nets[0]", Want: "1", Have: "2"}}}}
	kinds := []copier.KindVerification{{Kind: "GlobalNetworkSet", V1: 3, V3: 3, Same: 2, Altered: 1, Digest: "9f86"}}
	for waive, want := range map[string]struct{ rejected, digests string }{
		"": {rejected: "GlobalNetworkSet a: an admission policy or a webhook makes something else of it in v3: spec.nets[0]: 1 in v1, 2 in v3; change what does it, and delete the copy; " +
			"or, if v3 is to have it so, waive it with the annotation migration.projectcalico.org/waive=altered-copies@u on the migration"},
		"altered-copies@u": {digests: "GlobalNetworkSet=2+1:9f86"},
	} {
		problems := judgeAltered(&migration{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: waive}}}, altered)
		rejected, digests := "", ""
		for _, p := range problems {
			rejected += p.Error()
		}
		if found := verified(copier.Verification{Kinds: kinds, Altered: altered}, len(problems) == 0, 0, time.Time{}); found != nil {
			digests = found.Digests
		}
		if rejected != want.rejected || digests != want.digests {
			t.Errorf("waive=%q: rejected %q, verified %q; want %q, %q", waive, rejected, digests, want.rejected, want.digests)
		}
	}
}

// A waiver is about what a person has seen: one that comes with the manifest from elsewhere waives nothing.
func TestWaiversAreBound(t *testing.T) {
	for given, want := range map[string]string{
		"dependents@u":                     "[dependents]",
		" dependents@u , memory@u":         "[dependents memory]",
		"dependents":                       "[]",
		"dependents@other":                 "[]",
		"dependents@":                      "[]",
		"dependents@other,v1-changed@u":    "[v1-changed]",
		"dependents@u@other":               "[]",
		strings.Repeat("dependents@", 3):   "[]",
		"v1-changed@u dependents v1-kinds": "[v1-changed]",
	} {
		dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: given}}}
		waived := slices.DeleteFunc([]string{"dependents", "memory", "v1-changed", "v1-kinds"}, func(id string) bool { return !isWaived(dm, id) })
		if got := fmt.Sprint(waived); got != want {
			t.Errorf("%q waives %s, want %s", given, got, want)
		}
	}
}
