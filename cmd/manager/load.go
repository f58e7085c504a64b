package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	machines, err := loadFrom(phases.Files, "")
	if err != nil || dir == "" {
		return machines, err
	}
	own, err := loadFrom(os.DirFS(dir), dir)
	if err != nil {
		return nil, fmt.Errorf("--phases-dir: %w", err)
	}
	maps.Copy(machines, own)
	return machines, nil
}

func loadFrom(files fs.FS, dir string) (map[string]*fsm.Machine, error) {
	entries, err := fs.ReadDir(files, ".") // a Glob would take what it cannot read for empty
	if err != nil {
		return nil, fmt.Errorf("list machine files in %s: %w", dir, err)
	}
	machines := map[string]*fsm.Machine{}
	var all fsm.Diagnostics
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".yaml" {
			continue
		}
		data, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read machine file %s: %w", filepath.Join(dir, entry.Name()), err)
		}
		machine, diags := loadMachine(filepath.Join(dir, entry.Name()), data)
		all = append(all, diags...)
		if machine == nil {
			continue
		}
		if other := machines[machine.Name()]; other != nil {
			all = append(all, nameFinding(machine.File(), "PG000", fmt.Sprintf("machine %q is also in %s", machine.Name(), other.File()),
				"keep one of them here; a spare copy must not end in .yaml"))
			continue
		}
		machines[machine.Name()] = machine
	}
	return machines, all.Err()
}

func nameFinding(file, code, message, fix string) fsm.Diagnostic {
	return fsm.Diagnostic{Code: code, File: file, Pos: fsm.Pos{Line: 1, Column: 1}, Path: "metadata.name", Message: message, Fix: fix}
}

func loadMachine(file string, data []byte) (*fsm.Machine, fsm.Diagnostics) {
	def, diags := fsm.Load(file, data)
	if def == nil {
		return nil, diags
	}
	known := bindings()
	b, ok := known[def.Metadata.Name]
	if !ok {
		return nil, fsm.Diagnostics{nameFinding(file, "PG005",
			fmt.Sprintf("this program has no controller for a machine named %q", def.Metadata.Name),
			"machines it can run: "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))}
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
