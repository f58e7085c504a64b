package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/phases"
)

// stdin is the name of the input in findings.
const stdin = "stdin"

// compiledOnce are the machines that are compiled in, which are tested. A command asks for them more than once.
var compiledOnce = sync.OnceValues(func() ([]*fsm.Machine, error) { return machinesOf(streams{err: io.Discard}, nil) })

func compiledIn() []*fsm.Machine {
	all, _ := compiledOnce()
	return all
}

// readMachines reads files and directories (of *.yaml, *.yml); without any, the machines
// that are compiled in. An error is about what cannot be read; what is wrong with
// a machine is printed.
func readMachines(s streams, args []string) ([]*fsm.Machine, error) {
	if len(args) == 0 {
		return compiledOnce()
	}
	return machinesOf(s, args)
}

func machinesOf(s streams, args []string) (all []*fsm.Machine, refused error) {
	files, err := readFiles(nil, args)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		machine, diags, err := checkMachine(f.Name, f.Data)
		switch {
		case err != nil:
			return nil, err
		case machine == nil:
			refused = tell(s, diags.Err(), errFindings)
		default:
			all = append(all, machine)
		}
	}
	return all, refused
}

// readFiles reads what arguments name: files, directories (their *.yaml, *.yml), and - for
// the input; without any, the machines that are compiled in.
func readFiles(in io.Reader, args []string) ([]lint.File, error) {
	if len(args) == 0 {
		return readDir(phases.Files, "phases")
	}
	var all []lint.File
	for _, arg := range args {
		files, err := readArg(in, arg)
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}

func readCRDs(args []string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	if len(args) == 0 {
		return nil, nil
	}
	files, err := readFiles(nil, args)
	if err != nil {
		return nil, fmt.Errorf("--crd: %w", err)
	}
	var all []apiextensionsv1.CustomResourceDefinition
	for _, f := range files {
		crds, err := lint.LoadCRDs(f)
		if err != nil {
			return nil, fmt.Errorf("--crd: %w", err)
		}
		all = append(all, crds...)
	}
	return all, nil
}

func readArg(in io.Reader, arg string) ([]lint.File, error) {
	if arg == "-" && in != nil {
		data, err := io.ReadAll(io.LimitReader(in, diag.MaxFileSize+1)) // one byte more is a finding
		return []lint.File{{Name: stdin, Data: data}}, err
	}
	info, err := os.Stat(arg)
	if err != nil {
		return nil, fmt.Errorf("%w: give a file or a directory of them", err)
	}
	if info.IsDir() {
		return readDir(os.DirFS(arg), arg)
	}
	data, err := os.ReadFile(arg)
	return []lint.File{{Name: arg, Data: data}}, err
}

func readDir(files fs.FS, dir string) ([]lint.File, error) {
	names, err := fs.Glob(files, "*.yaml")
	more, _ := fs.Glob(files, "*.yml") // a pattern without a flaw
	if names = append(names, more...); err != nil || len(names) == 0 {
		return nil, fmt.Errorf("there is no file *.yaml in %s: name another directory, or a file", dir)
	}
	slices.Sort(names)
	all := make([]lint.File, len(names))
	for i, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		all[i] = lint.File{Name: filepath.Join(dir, name), Data: data}
	}
	return all, nil
}

// checkMachine answers nil with what is wrong with a file.
func checkMachine(name string, data []byte) (*fsm.Machine, diag.Diagnostics, error) {
	def, diags := fsm.Load(name, data)
	if def == nil {
		return nil, diags, nil
	}
	bindings, err := catalog.Bindings(def)
	if err != nil {
		return nil, nil, err
	}
	machine, diags := fsm.Bind(def, bindings)
	return machine, diags, nil
}

// chooseMachine finds the one machine that is meant: a file, or the name of a compiled-in
// machine.
func chooseMachine(s streams, what string) (*fsm.Machine, error) {
	var args []string
	if isPath(what) {
		args, what = []string{what}, ""
	}
	machines, err := readMachines(s, args)
	if err != nil {
		return nil, err
	}
	k := known{all: candidates(nil, machines, len(args) == 0)}
	return k.having(what, "")
}

// choose is chooseMachine that also finds what managers of the cluster have published.
func (c *cluster) choose(ctx context.Context, s streams, what string) (*fsm.Machine, error) {
	if isPath(what) {
		return chooseMachine(s, what)
	}
	k, _, cancel := c.quietly(ctx, s.err)
	defer cancel()
	return k.having(what, "")
}

// having is the machine of a name; without one the only machine that has a phase, or the only
// one at all.
func (k *known) having(name, phase string) (*fsm.Machine, error) {
	var found []*fsm.Machine
	var names, phases []string
	for _, c := range k.all {
		m, err := c.machine(live.Object{})
		if err != nil && c.name == name {
			return nil, err
		}
		if err != nil {
			continue
		}
		names, phases = append(names, m.Name()), append(phases, m.Name()+" has "+strings.Join(m.Phases(), ", "))
		if name == m.Name() || name == "" && (phase == "" || slices.Contains(m.Phases(), phase)) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("which machine? give a file or one of: %s", strings.Join(names, ", "))
	case name != "":
		return nil, fmt.Errorf("%q is neither a file nor a machine that is published or compiled in: name one of %s", name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no machine has a phase %q, use one of theirs: %s", phase, strings.Join(phases, "; "))
}

func isPath(text string) bool {
	_, err := os.Stat(text)
	return text != "" && (err == nil || strings.ContainsAny(text, `/\`) || strings.HasSuffix(text, ".yaml"))
}
