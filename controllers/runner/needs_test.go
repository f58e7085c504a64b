package runner

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

const needyMachine = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: needy}
spec:
  for: {apiVersion: migration.projectcalico.org/v1, kind: DatastoreMigration}
  initial: A
  finalizer: example.org/needy
  actions:
  - {name: Renamed, use: Write}
  effects:
  - {name: taken, acquire: Renamed, release: Undo}
  phases:
  - name: A
    steps: [{action: Renamed}]
    watch:
    - {apiVersion: apps/v1, kind: DaemonSet, name: node}
    - {apiVersion: v1, kind: Service, owned: true}
    next:
    - {to: B, when: guards.open}
    onDelete: {to: Deleted}
    poll: 1s
    timeout: {after: 1h, stalled: TooLong}
  - name: B
    terminal: success
    onDelete: {to: Deleted}
  - {name: Deleted, deletion: true, steps: [{undo: held}], next: [{to: End}], timeout: {after: 1h, stalled: TooLong}}
  - {name: End, deletion: true, end: true}
`

// Needs are those of the machine that runs: what its file does not name needs no right.
func TestNeedsAreThoseOfTheMachine(t *testing.T) {
	may := func(verb, resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{rbac.Rule(verb, "g", resource)}
	}
	type dm = *migrationv1.DatastoreMigration
	p := &Program[dm]{
		Rights: may("list", "always"),
		Actions: map[string]Action[dm]{
			"Write": {Rights: may("patch", "written"), Access: func(fsm.Params) []rbac.Access {
				return []rbac.Access{{APIVersion: "v1", Kind: "Gateway", Verbs: []string{"get"}}, {Verbs: []string{"delete"}}} // of what is not known
			}}, "Undo": {Rights: may("patch", "written")}, "Idle": {Rights: may("patch", "idle")},
		},
		Guards: map[string]Guard[dm]{"open": {Rights: may("get", "asked")}, "idle": {Rights: may("get", "idle")}},
	}
	for name, action := range p.Actions {
		action.Do = func(context.Context, *Scope[dm]) (map[string]any, error) { return nil, nil }
		p.Actions[name] = action
	}
	for name, guard := range p.Guards {
		guard.Open = func(context.Context, *fsm.Machine, dm) (bool, string, error) { return true, "", nil }
		p.Guards[name] = guard
	}
	def, found := fsm.Load("needy.yaml", []byte(needyMachine))
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	machine, found := fsm.Bind(def, p.Bindings())
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range p.Needs(machine, rbac.Guess) {
		got = append(got, n.String()+": "+strings.Join(n.For, ", "))
	}
	slices.Sort(got)
	want := []string{
		"create events.events.k8s.io: Events",
		"create machinedefinitions.phasegate.dev: showing the machines in force",
		"create machinestates.phasegate.dev: every pass",
		"create selfsubjectaccessreviews.authorization.k8s.io: checks",
		"delete machinedefinitions.phasegate.dev: showing the machines in force",
		"delete machinestates.phasegate.dev: every pass",
		"get asked.g: guard open",
		"get datastoremigrations.migration.projectcalico.org: every pass",
		"get gatewaies: Renamed",
		"get leases.coordination.k8s.io: telling whether another installation is there",
		"get machinestates.phasegate.dev: every pass",
		"list always.g: the controller",
		"list daemonsets.apps node: watch of DaemonSet node",
		"list datastoremigrations.migration.projectcalico.org: every pass",
		"list machinedefinitions.phasegate.dev: showing the machines in force",
		"list machinestates.phasegate.dev: every pass",
		"list services: watch of Service",
		"patch datastoremigrations.migration.projectcalico.org: every pass",
		"patch datastoremigrations/status.migration.projectcalico.org: every pass",
		"patch events.events.k8s.io: Events",
		"patch machinedefinitions.phasegate.dev: showing the machines in force",
		"patch machinestates.phasegate.dev: every pass",
		"patch written.g: Undo, Write",
		"watch daemonsets.apps node: watch of DaemonSet node",
		"watch datastoremigrations.migration.projectcalico.org: every pass",
		"watch machinestates.phasegate.dev: every pass",
		"watch services: watch of Service",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Unclear{{By: "Renamed", Verbs: []string{"delete"}}}, p.Unclear(machine)); diff != "" {
		t.Errorf("what no rule can grant (-want +got):\n%s", diff)
	}
}
