package datastoremigration

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
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
		"nothing":    {why: "a person decides, nobody else", blockers: []string{"soft: bad" + how, "hard: bad: mend it"}},
		"one":        {why: "it is told all the same", waive: "soft@u", blockers: []string{"hard: bad: mend it"}, warnings: []string{"soft: waived: bad: mend it"}},
		"with space": {why: "people write lists so", waive: " soft@u, ", blockers: []string{"hard: bad: mend it"}, warnings: []string{"soft: waived: bad: mend it"}},
		"too much": {why: "a migration without the lock is none", waive: "soft@u,hard@u",
			blockers: []string{"hard: bad: mend it",
				`waivers: DatastoreMigration m waives "hard", which is no check that may be waived: correct the annotation migration.projectcalico.org/waive: it may list last-copies, soft, v1-backup, v1-changed`},
			warnings: []string{"soft: waived: bad: mend it"}},
		"misspelt": {why: "it would look as if it were waived", waive: "sofd@u",
			blockers: []string{"soft: bad" + how, "hard: bad: mend it",
				`waivers: DatastoreMigration m waives "sofd", which is no check that may be waived: correct the annotation migration.projectcalico.org/waive: it may list last-copies, soft, v1-backup, v1-changed`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: c.waive}}}
			s := &steps{client: fakeclient.NewClientBuilder().WithScheme(NewScheme()).WithObjects(dm).Build()}
			for _, asking := range []*migration{dm, nil} { // nil: kubectl phasegate check
				blockers, warnings, err := check.Split(check.Ask(t.Context(), s.heedWaivers(asking, []check.Check{failing("soft", true), failing("hard", false)})))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([][]string{c.blockers, c.warnings}, [][]string{blockers, slices.Clip(warnings)}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.why, diff)
				}
			}
		})
	}
}
