package datastoremigration

import (
	"io/fs"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/test/support/renamed"
)

// bound are the shipped machine, and the same with other names of phases, steps, effects and
// reasons: Go has to do the same with both.
var bound = sync.OnceValues(func() (map[string]*fsm.Machine, error) {
	data, err := fs.ReadFile(phases.Files, MachineName+".yaml")
	if err != nil {
		return nil, err
	}
	other, err := renamed.File(data)
	if err != nil {
		return nil, err
	}
	all := map[string]*fsm.Machine{}
	for name, text := range map[string][]byte{"shipped": data, "renamed": other} {
		def, diags := fsm.Load(name+".yaml", text)
		if err := diags.Err(); err != nil {
			return nil, err
		}
		if all[name], diags = fsm.Bind(def, Bindings()); diags.Err() != nil {
			return nil, diags.Err()
		}
	}
	return all, nil
})

func files(t *testing.T) map[string]*fsm.Machine {
	t.Helper()
	all, err := bound()
	must(t, err)
	return all
}

func shippedMachine(t *testing.T) *fsm.Machine {
	t.Helper()
	return files(t)["shipped"]
}

// as is a migration as a machine of files has it.
func as(file string, dm *migration) *migration {
	dm = dm.DeepCopy()
	if file == "renamed" {
		renamed.Status(&dm.Status.Machine)
	}
	return dm
}

// What Go makes of a phase is the same by whatever name.
func TestPhaseInfoByAnyName(t *testing.T) {
	all := files(t)
	got := map[string]map[string]fsm.PhaseInfo{}
	for file, m := range all {
		got[file] = map[string]fsm.PhaseInfo{}
		for _, phase := range m.Phases() {
			got[file][renamed.Back(phase)] = m.PhaseInfo(phase)
		}
	}
	if diff := cmp.Diff(got["shipped"], got["renamed"]); diff != "" {
		t.Errorf("(-shipped +renamed):\n%s", diff)
	}
	want := map[string]fsm.PhaseInfo{
		"Pending": {Known: true}, "Migrating": {Known: true}, "WaitingForConflictResolution": {Known: true},
		"Converged": {Known: true, NoReturn: true}, "Complete": {Known: true, NoReturn: true, Terminal: "success"}, "CleaningUp": {Known: true, NoReturn: true, Deletion: true},
		"RollingBack": {Known: true, Failing: true}, "Failed": {Known: true, Failing: true, Terminal: "failure"}, "Rejected": {Known: true, Failing: true, Terminal: "failure"},
		"Aborting": {Known: true, Deletion: true}, "Deleted": {Known: true, Deletion: true},
	}
	for phase, info := range want {
		info.Shown = phase
		if phase == "Rejected" {
			info.Shown = "Failed"
		}
		want[phase] = info
	}
	if diff := cmp.Diff(want, got["shipped"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
