package lint

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// ownStatus finds a Patch of the status of the very object that the machine drives, where the file names it. The action refuses
// any other way to name it when it is called.
func ownStatus(m *fsm.Machine, call fsm.Call) diag.Diagnostics {
	with, kind := call.With, m.For()
	if call.Action != "Patch" || with.String("subresource", "") != "status" || !is(with, "name", "self.metadata.name") || with["namespace"] != nil && !is(with, "namespace", "self.metadata.namespace") {
		return nil
	}
	patched := schema.FromAPIVersionAndKind(with.String("apiVersion", ""), with.String("kind", ""))
	if patched.GroupKind() != schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind).GroupKind() {
		return nil
	}
	return diag.Diagnostics{m.Definition().Finding(call.Place("subresource"), "PG015", "it would write the status of the object that the machine drives, which the manager writes",
		"use spec.status for fields, and SetCondition for conditions")}
}

// is tells whether a parameter is an expression and nothing else.
func is(with fsm.Params, name, expression string) bool {
	inner, found := strings.CutPrefix(with.String(name, ""), "${")
	return found && strings.TrimSpace(strings.TrimSuffix(inner, "}")) == expression
}
