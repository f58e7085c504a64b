package main

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
	"github.com/phasegate/phasegate/controllers/mcpserver"
)

// publisher shows the machines that this manager runs to kubectl phasegate.
func (p *program) publisher(cfg *rest.Config, log logr.Logger) (*definitions.Publisher, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the client of machine definitions: %w", err)
	}
	return &definitions.Publisher{Client: c, Store: p.store, Runs: p.runsMachine, Manager: p.leader.installation(), Log: log.WithName("definitions")}, nil
}

// runsMachine tells whether one of the controllers that --controllers names runs a machine.
func (o *options) runsMachine(name string) bool {
	controller := map[string]string{datastoremigration.MachineName: checkup.DatastoreMigration, mcpserver.MachineName: checkup.MCPServer}[name]
	if controller == "" && !catalog.Compiled(name) {
		controller = checkup.Custom
	}
	return o.runs(controller)
}
