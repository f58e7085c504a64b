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
)

// statesPage is how many states are read at a time.
const statesPage = 500

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

// states reads the states of a machine's objects from the API server, page by page. Where
// it does not have their kind, there are none.
func states(reader client.Reader) machinestore.Objects {
	return func(ctx context.Context, machine string, each func(*v1alpha1.MachineState)) error {
		for page := (v1alpha1.MachineStateList{}); ; {
			err := reader.List(ctx, &page, client.MatchingLabels{v1alpha1.MachineLabel: machine}, client.Limit(statesPage), client.Continue(page.Continue))
			switch {
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			for i := range page.Items {
				each(&page.Items[i])
			}
			if page.Continue == "" {
				return nil
			}
		}
	}
}
