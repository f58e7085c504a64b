package builtin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
)

// What an inverse names is there: a parameter that is misspelt would be left out silently, and the release be about another object.
func TestInversesFit(t *testing.T) {
	specs, got := Specs(), map[string]string{}
	for name, spec := range specs {
		inv := spec.Inverse
		if inv == nil {
			continue
		}
		got[name] = inv.Action
		for param, at := range inv.With {
			root, rest, _ := strings.Cut(at, ".")
			if _, known := specs[inv.Action].Params[param]; !known {
				t.Errorf("%s has no parameter %s", inv.Action, param)
			}
			if p := spec.Params[root]; p.Type == "" || rest != "" && p.Type != fsm.TypeObject {
				t.Errorf("%s has no %s", name, at)
			}
		}
		if _, known := spec.Params[inv.If]; inv.If != "" && !known {
			t.Errorf("%s has no parameter %s", name, inv.If)
		}
	}
	if d := cmp.Diff(map[string]string{"Apply": "Delete", "Claim": "Unclaim", "Patch": "Unpatch", "RunJob": "EndJob"}, got); d != "" {
		t.Errorf("an effect may have its release of these (-want +got):\n%s", d)
	}
}
