package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

// ourClient is for MachineStates and MachineDefinitions.
func ourClient(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the client of machine states: %w", err)
	}
	return c, nil
}

// states reads the states of a machine's objects from the API server. Where it does not
// have their kind, there are none.
func states(reader client.Reader) machinestore.Objects {
	return func(ctx context.Context, machine string, each func(*v1alpha1.MachineState)) error {
		for state, err := range machinestate.Each(ctx, reader, machine) {
			switch {
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			each(state)
		}
		return nil
	}
}
