package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

// bindings lists, by machine name, what a machine file may use.
func bindings() map[string]fsm.Bindings {
	return map[string]fsm.Bindings{datastoremigration.MachineName: datastoremigration.Bindings()}
}

// loadMachines loads the compiled-in machines, then those of a directory over
// them. Every file is checked, so that all findings are told at once.
func loadMachines(dir string) (map[string]*fsm.Machine, error) {
	machines := map[string]*fsm.Machine{}
	if err := loadFrom(phases.Files, "", machines); err != nil {
		return nil, err
	}
	if dir == "" {
		return machines, nil
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("--phases-dir: %w", err)
	}
	return machines, loadFrom(os.DirFS(dir), dir, machines)
}

func loadFrom(files fs.FS, dir string, into map[string]*fsm.Machine) error {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return fmt.Errorf("list machine files in %s: %w", dir, err)
	}
	var all fsm.Diagnostics
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("read machine file: %w", err)
		}
		machine, diags := loadMachine(filepath.Join(dir, name), data)
		all = append(all, diags...)
		if machine != nil {
			into[machine.Name()] = machine
		}
	}
	return all.Err()
}

func loadMachine(file string, data []byte) (*fsm.Machine, fsm.Diagnostics) {
	def, diags := fsm.Load(file, data)
	if def == nil {
		return nil, diags
	}
	known := bindings()
	b, ok := known[def.Metadata.Name]
	if !ok {
		var names []string
		for name := range known {
			names = append(names, name)
		}
		return nil, fsm.Diagnostics{{Code: "PG005", File: file, Pos: fsm.Pos{Line: 1, Column: 1}, Path: "metadata.name",
			Message: fmt.Sprintf("this program has no controller for a machine named %q", def.Metadata.Name),
			Fix:     "machines it can run: " + strings.Join(names, ", ")}}
	}
	return fsm.Bind(def, b)
}

func loadRegistry(file string) (*resources.Registry, error) {
	if file == "" {
		return resources.Default(), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--kinds-file: %w", err)
	}
	return resources.LoadRegistry(file, data)
}
