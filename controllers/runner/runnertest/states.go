package runnertest

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

// States is Reconciler.States for a test without informers: it lists the states of a machine each time. Where they cannot be
// read, there are none.
func States(c client.Reader, machine string) func(types.NamespacedName) []string {
	return func(key types.NamespacedName) (names []string) {
		for state, err := range machinestate.Each(context.Background(), c, machine) {
			if err != nil {
				return nil
			}
			if of := state.Spec.Object; of.Namespace == key.Namespace && of.Name == key.Name {
				names = append(names, state.Name)
			}
		}
		return names
	}
}
