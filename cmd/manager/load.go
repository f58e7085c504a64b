package main

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

// loadMachines loads the compiled-in machines, and those of a directory over them.
// looked is called each time the directory has been looked at; nil: nobody asks.
func loadMachines(o *options, log logr.Logger, looked func()) (*machinestore.Store, error) {
	store, err := machinestore.Load(machinestore.Options{
		Shipped: phases.Files, Dir: o.phasesDir, Bindings: catalog.Bindings, Log: log.WithName("machines"), Looked: looked,
		Runs: func(machine string) bool { return o.runs(checkup.ControllerOf(machine)) },
	})
	if err != nil {
		return nil, fmt.Errorf("--phases-dir: %w", err)
	}
	return store, nil
}

func loadRegistry(file string) (*resources.Registry, error) {
	registry, err := lint.LoadRegistry(file)
	if err != nil {
		return nil, fmt.Errorf("--kinds-file: %w", err)
	}
	return registry, nil
}
