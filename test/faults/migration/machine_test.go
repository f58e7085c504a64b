package migration_test

import (
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
)

const (
	machineFile = "datastore-migration.yaml"
	gateMessage = "everything is verified"
)

// quick is the shipped machine, less what is long for the sake of real clusters. With a
// gate it waits when everything is verified, right before the point of no return.
func quick(gate bool) (*fsm.Machine, error) {
	text, err := phases.Files.ReadFile(machineFile)
	if err != nil {
		return nil, err
	}
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(text, m); err != nil {
		return nil, err
	}
	for i := range m.Spec.Phases {
		p := &m.Spec.Phases[i]
		for j := range p.Steps {
			shorten(&p.Steps[j])
		}
		if gate && p.Name == "Migrating" {
			p.Steps = append(p.Steps, v1alpha1.Step{Name: "gate", Wait: "1h", Message: gateMessage, If: "result.conflicts == 0 && result.different == 0"})
		}
	}
	if text, err = yaml.Marshal(m); err != nil {
		return nil, err
	}
	definition, findings := fsm.Load(machineFile, text)
	if err := findings.Err(); err != nil {
		return nil, fmt.Errorf("the machine of the test: %w", err)
	}
	machine, findings := fsm.Bind(definition, datastoremigration.Bindings())
	return machine, findings.Err()
}

func shorten(step *v1alpha1.Step) {
	switch step.Action {
	case "BlockV1Writes": // proved all the same, and there is one API server here
		with := map[string]any{"settle": "0s", "watchFrom": 20}
		maps.Copy(with, step.With)
		step.With = with
	case "Drain":
		step.With = map[string]any{"quiet": "10ms", "atMost": "2s"}
	case "AwaitV3Served":
		step.Poll = "20ms"
	case "ObserveRollout", "DeleteV1CRDs":
		step.Poll = "200ms"
	}
}
