package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
)

// machineFile is a file that was read and checked.
type machineFile struct {
	name string
	// machine is nil when a finding is an error.
	machine *fsm.Machine
	diags   fsm.Diagnostics
}

// readMachines reads files and directories (of *.yaml); without any, the machines
// that are compiled in. An error is about what cannot be read; what is wrong with
// a machine is a finding of its file.
func readMachines(args []string) ([]machineFile, error) {
	if len(args) == 0 {
		return readDir(phases.Files, "phases")
	}
	var all []machineFile
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("%w: give a machine file or a directory of them", err)
		}
		if info.IsDir() {
			files, err := readDir(os.DirFS(arg), arg)
			if err != nil {
				return nil, err
			}
			all = append(all, files...)
			continue
		}
		data, err := os.ReadFile(arg)
		if err != nil {
			return nil, err
		}
		file, err := checkMachine(arg, data)
		if err != nil {
			return nil, err
		}
		all = append(all, file)
	}
	return all, nil
}

func readDir(files fs.FS, dir string) ([]machineFile, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("there is no machine file (*.yaml) in %s", dir)
	}
	slices.Sort(names)
	all := make([]machineFile, len(names))
	for i, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		if all[i], err = checkMachine(filepath.Join(dir, name), data); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func checkMachine(name string, data []byte) (machineFile, error) {
	def, diags := fsm.Load(name, data)
	if def == nil {
		return machineFile{name: name, diags: diags}, nil
	}
	bindings, err := catalog.Bindings(def)
	if err != nil {
		return machineFile{}, err
	}
	machine, diags := fsm.Bind(def, bindings)
	return machineFile{name: name, machine: machine, diags: diags}, nil
}
