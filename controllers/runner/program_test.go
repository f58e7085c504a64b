package runner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

// An action is its function: a file cannot be bound to a name alone.
func TestNameWithoutFunction(t *testing.T) {
	type errand = *migrationv1.DatastoreMigration
	program := &Program[errand]{
		Actions: map[string]Action[errand]{
			"Work":   {Do: func(context.Context, *Scope[errand]) (map[string]any, error) { return nil, nil }},
			"Later":  {ActionSpec: fsm.ActionSpec{Doc: "Nobody has written it yet."}},
			"Noting": {},
		},
		Guards: map[string]Guard[errand]{"later": {Doc: "Nobody has written it yet."}},
	}
	want := fsm.Bindings{Actions: map[string]fsm.ActionSpec{"Work": {}}, Guards: map[string]string{}}
	if diff := cmp.Diff(want, program.Bindings()); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	const file = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: errand}
spec:
  for: {apiVersion: example.com/v1, kind: Errand}
  initial: Only
  phases:
  - {name: Only, terminal: success, steps: [{action: Later}], next: [{to: Only, when: 'guards.later'}], onDelete: {immediate: true}}
`
	def, diags := fsm.Load("errand.yaml", []byte(file))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	_, diags = fsm.Bind(def, program.Bindings())
	if text := fmt.Sprint(diags.Err()); !strings.Contains(text, `action "Later" is not known`) || !strings.Contains(text, "later") {
		t.Errorf("bound to names without a function: %s", text)
	}
}
