package fsm_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
)

// Whatever a file says, a proof ends, and tells the same each time.
func FuzzProve(f *testing.F) {
	f.Add(soundMachine)
	for _, name := range []string{"abort-skips-unlock", "unlock-before-stored"} {
		f.Add(string(readFile(f, "testdata/machines/"+name+".yaml")))
	}
	for _, name := range []string{"datastore-migration", "mcpserver"} {
		f.Add(string(readFile(f, "../phases/"+name+".yaml")))
	}
	f.Fuzz(func(t *testing.T, file string) {
		def, diags := program.Load("fuzz.yaml", []byte(file))
		if len(diags) > 0 {
			return
		}
		m := fsm.Provable(def, everything(def))
		if m == nil {
			return
		}
		o := prove.Options{MaxStates: 500}
		report, diags := prove.Prove(m, o)
		again, same := prove.Prove(m, o)
		if d := cmp.Diff(report, again) + cmp.Diff(diags, same); d != "" {
			t.Error(d)
		}
		for _, d := range diags {
			if d.Code != "PG201" || d.Line == 0 || d.Fix == "" {
				t.Errorf("a finding without a place or a fix: %+v", d)
			}
		}
	})
}
