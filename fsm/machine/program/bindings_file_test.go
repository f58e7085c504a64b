package program

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

func TestBindingsFile(t *testing.T) {
	const header = "apiVersion: phasegate.dev/v1alpha1\nkind: Bindings\nmetadata: {name: x}\n"
	for name, c := range map[string]struct {
		why, file string
		want      Bindings
		finding   string
	}{
		"everything": {
			why:  "what is declared is what a machine may name",
			file: header + "actions:\n  Wait:\n    doc: Waits.\n    params: {on: {type: string, required: true, doc: whom}}\n    outputs: {there: bool}\nguards: {open: Tells whether it is open.}\n",
			want: Bindings{
				Actions: map[string]ActionSpec{"Wait": {Doc: "Waits.", Outputs: map[string]expr.Type{"there": expr.TypeBool},
					Params: map[string]Param{"on": {Type: expr.TypeString, Required: true, Doc: "whom"}}}},
				Guards: map[string]string{"open": "Tells whether it is open."},
			},
		},
		"type of a parameter": {
			why:     "a type that nothing has would accept nothing",
			file:    header + "actions:\n  Wait:\n    params: {on: {type: text}}\n",
			finding: `b.yaml:6:25: PG000: unknown type "text"`,
		},
		"type of an output": {
			why:     "a list is written []string",
			file:    header + "actions:\n  Wait:\n    outputs: {there: list}\n",
			finding: `b.yaml:6:22: PG000: unknown type "list"`,
		},
		"name of an output": {
			why:     "result keeps there what each step has said",
			file:    header + "actions:\n  Wait:\n    outputs: {steps: int}\n",
			finding: `b.yaml:6:22: PG000: an output cannot be called steps`,
		},
		"a machine": {
			why:     "the two files are easily mixed up on a command line",
			file:    "apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: x}\n",
			finding: `b.yaml:1:13: PG000: apiVersion "phasegate.dev/v1alpha1", kind "Machine"`,
		},
		"unknown field": {
			why:     "read as strictly as a machine",
			file:    header + "action: {}\n",
			finding: `b.yaml:4:1: PG000: unknown field "action" in the file`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, diags := LoadBindings("b.yaml", []byte(c.file))
			if c.finding != "" {
				if len(diags) != 1 || !strings.HasPrefix(diags[0].String(), c.finding) {
					t.Fatalf("%s: findings %v, want %s", c.why, diags, c.finding)
				}
				return
			}
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			text, err := got.File("x")
			if err != nil {
				t.Fatal(err)
			}
			again, diags := LoadBindings("again.yaml", text)
			if d := cmp.Diff(got, again); d != "" || len(diags) > 0 {
				t.Errorf("what is printed reads back differently: %v\n%s", diags, d)
			}
		})
	}
}
