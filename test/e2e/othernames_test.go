package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	difference "github.com/google/go-cmp/cmp"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	othernames "github.com/phasegate/phasegate/test/support/renamed"
	"github.com/phasegate/phasegate/test/support/setup"
)

// recorded is what was seen of a run by the names of the shipped file, by the moment.
type recorded map[string][]string

// changing is what differs between two runs that do the same: times, tokens of requests, UIDs, revisions.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z(-[a-z0-9]{5}\b)?|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|sha256:[0-9a-f]+`)

// words are those of a text, since columns are as wide as the names in them.
func words(text string) string {
	return strings.Join(strings.Fields(changing.ReplaceAllString(othernames.Back(text), "…")), " ")
}

// run is the world with one machine file, and what was seen of it.
type run struct {
	*world
	seen recorded
	args []string
	m    measured
}

func (r *run) saw(moment, format string, args ...any) {
	r.seen[moment] = append(r.seen[moment], words(fmt.Sprintf(format, args...)))
}

// manages starts a manager with the file.
func (r *run) manages(t *testing.T) *harness.Process {
	t.Helper()
	address, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	r.m = measured{address}
	return r.managerOf(t, "", managerAccount, append([]string{"--metrics-bind-address", address, "--metrics-secure=false"}, r.args...)...)
}

// types runs a command, and notes what it prints and its exit code.
func (r *run) types(t *testing.T, moment, line string, code int) {
	t.Helper()
	out, errs, got := r.typed(t, "kubectl phasegate "+line)
	if got != code {
		t.Fatalf("%s: exit code %d, want %d:\n%s%s", line, got, code, errs, out)
	}
	r.saw(moment, "$ %s: %s", line, out+errs)
}

// asks is types without what it says while it waits, which depends on how fast that is.
func (r *run) asks(t *testing.T, moment, line string) {
	t.Helper()
	out, errs, code := r.typed(t, "kubectl phasegate "+line)
	if code != 0 {
		t.Fatalf("%s: exit code %d:\n%s%s", line, code, errs, out)
	}
	r.saw(moment, "$ %s: %s", line, out)
}

// look notes the status, the metrics and what kubectl phasegate status tells.
func (r *run) look(t *testing.T, moment string) {
	t.Helper()
	dm := r.read(t, setup.MigrationName)
	st := &dm.Status
	r.saw(moment, "%s, %q; locked %t, lock %t, started %t, completed %t, ahead %t, conflicts %d", st.Phase, st.Message,
		st.DatastoreLockedAt != nil, st.Lock != nil, st.StartedAt != nil, st.CompletedAt != nil, st.CopyAhead != nil, len(st.Conflicts))
	r.saw(moment, "%s step %q holds %v, on delete %s", st.Machine.Phase, st.Machine.Step, st.Machine.Held, st.Machine.OnDelete)
	for _, c := range st.Conditions {
		r.saw(moment, "condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, h := range st.Machine.History {
		r.saw(moment, "%s → %s: %s %s", h.From, h.To, h.Reason, h.Message)
	}
	r.saw(moment, "%v", r.gauges(t))
	var shown map[string]any
	if err := json.Unmarshal([]byte(r.phasegate(t, "status", setup.MigrationName, "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"phase", "phases", "outcome", "step", "message", "whyNot", "held", "onDelete", "deleting", "conflictCount", "next"} {
		text, err := json.Marshal(shown[field])
		if err != nil {
			t.Fatal(err)
		}
		r.saw(moment, "status %s: %s", field, text)
	}
}

// gauges are what the metrics say of the migration, times left out.
func (r *run) gauges(t *testing.T) []string {
	t.Helper()
	var all []string
	families := r.m.scrape(t)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		ours := strings.HasPrefix(name, "phasegate_migration_") || name == "calico_migration_phase" || name == "phasegate_phase" || name == "phasegate_held_effects"
		if !ours || strings.HasSuffix(name, "_seconds") {
			continue
		}
		for _, m := range families[name].GetMetric() {
			text := name
			for _, l := range m.GetLabel() {
				text += " " + l.GetValue()
			}
			all = append(all, fmt.Sprint(othernames.Back(text), " ", m.GetGauge().GetValue()))
		}
	}
	slices.SortFunc(all, cmp.Compare)
	return all
}

// conflict ends by an abort before the cut-over.
func (r *run) conflict(t *testing.T) {
	r.obstruct(t)
	p := r.manages(t)
	r.start(t, setup.MigrationName, nowhere)
	r.await(t, setup.MigrationName, waiting)
	r.awaitMessage(t, setup.MigrationName, "Datastore is locked: ")
	r.look(t, "conflict")
	r.types(t, "conflict", "conflicts "+setup.MigrationName, 4)
	r.types(t, "conflict", "unlock --yes", 1) // the migration releases it
	r.types(t, "conflict", "cleanup --yes", 1)
	r.asks(t, "conflict", "abort --yes --wait")
	r.clear(t)
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	r.assertUntouched(t)
}

// failure is retried, and ends by breaking the glass.
func (r *run) failure(t *testing.T) {
	lift := r.forbid(t)
	p := r.manages(t)
	r.start(t, setup.MigrationName, nowhere)
	r.await(t, setup.MigrationName, migrationv1.PhaseFailed)
	r.awaitStatus(t, setup.MigrationName, "at rest", func(dm *migrationv1.DatastoreMigration) bool { return len(dm.Status.Machine.Held) == 0 })
	r.look(t, "failure")
	r.types(t, "failure", "lock --yes", 0)
	r.types(t, "failure", "unlock --yes", 0)
	lift()
	r.goOn(t, "remapped")
	r.asks(t, "failure", "retry "+setup.MigrationName)
	r.awaitMessage(t, setup.MigrationName, gateMessage("remapped"))
	r.look(t, "retried")
	r.types(t, "retried", "lock --yes", 1) // the migration closes by itself
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	r.types(t, "retried", "unlock --yes", 1)
	r.types(t, "retried", "unlock --yes --force", 0)
	p = r.manages(t)
	r.awaitGone(t, setup.MigrationName)
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	r.assertUntouched(t)
}

// cutOver ends by a deletion after it, which waits for the roll-out and cleans up.
func (r *run) cutOver(t *testing.T) {
	r.manages(t)
	r.start(t, setup.MigrationName, nowhere)
	r.await(t, setup.MigrationName, migrationv1.PhaseConverged)
	r.awaitMessage(t, setup.MigrationName, "variable not set")
	r.look(t, "converged")
	r.types(t, "converged", "abort --yes", 1)
	r.types(t, "converged", "cleanup --yes", 1)
	r.askRemoval(t, setup.MigrationName)
	r.awaitMessage(t, setup.MigrationName, "cannot be rolled back")
	r.look(t, "deleted")
	if err := fixture.SwitchComponents(t.Context(), r.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	r.awaitGone(t, setup.MigrationName)
	r.saw("gone", "CRDs of v1 %v, states %s", r.v1CRDs(t), r.kubectl(t, "get", "machinestates", "-o", "name"))
}

// Go knows no name of a phase, step, effect or reason: with a file that calls all of them otherwise, everything
// that people and tools see is the same, name by name.
func TestByOtherNames(t *testing.T) {
	shipped := textOf(t, filepath.Join(gated(t, fastConflicts, underTheLock), machineFile))
	other, err := othernames.File([]byte(shipped))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]recorded{}
	for _, file := range []struct{ name, text string }{{"shipped", shipped}, {"renamed", string(other)}} {
		inTurn(t, file.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, machineFile), []byte(file.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := &run{world: own(t, setup.Options{Objects: fixture.Demo(1, objects/2)}), seen: recorded{}, args: []string{"--phases-dir", dir}}
			r.dressAPIService(t)
			r.before = r.snapshot(t)
			for _, part := range []func(*testing.T){r.conflict, r.failure, r.cutOver} {
				began := time.Now()
				part(t)
				t.Logf("took %s", time.Since(began).Round(time.Second))
			}
			seen[file.name] = r.seen
		})
	}
	if diff := difference.Diff(seen["shipped"], seen["renamed"]); diff != "" {
		t.Errorf("(-shipped +renamed):\n%s", diff)
	}
}
