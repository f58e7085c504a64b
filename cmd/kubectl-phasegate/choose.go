package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/fsm"
)

// chooseMachine finds the one machine that is meant: a file, the name of a
// compiled-in machine, or, for an empty text, the only one that has the phase; an
// empty phase is every machine's.
func chooseMachine(s streams, what, phase string) (*fsm.Machine, error) {
	var args []string
	if isPath(what) {
		args, what = []string{what}, ""
	}
	files, err := readMachines(args)
	if err != nil {
		return nil, err
	}
	machines, err := sound(s, files)
	if err != nil {
		return nil, err
	}
	var names, phases []string
	for _, m := range machines {
		names = append(names, m.Name())
		phases = append(phases, m.Name()+" has "+strings.Join(m.Phases(), ", "))
	}
	found := slices.DeleteFunc(machines, func(m *fsm.Machine) bool {
		return what != "" && m.Name() != what || phase != "" && !slices.Contains(m.Phases(), phase)
	})
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("which machine? give a file or one of: %s", strings.Join(names, ", "))
	case phase != "":
		return nil, fmt.Errorf("no machine has a phase %q, use one of theirs: %s", phase, strings.Join(phases, "; "))
	case what == "":
		return nil, fmt.Errorf("no machine fits: name one of %s, or a file", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%q is neither a file nor a compiled-in machine: name one of %s", what, strings.Join(names, ", "))
}

// sound prints the findings of files that are refused.
func sound(s streams, files []machineFile) ([]*fsm.Machine, error) {
	var machines []*fsm.Machine
	refused := false
	for _, f := range files {
		if f.machine != nil {
			machines = append(machines, f.machine)
			continue
		}
		refused = true
		fmt.Fprintln(s.err, f.diags.Err())
	}
	if refused {
		return nil, errFindings
	}
	return machines, nil
}

// isPath tells a file or directory from the name of a machine.
func isPath(text string) bool {
	_, err := os.Stat(text)
	return text != "" && (err == nil || strings.ContainsAny(text, `/\`) || strings.HasSuffix(text, ".yaml"))
}

// completeMachines offers the compiled-in machines beside files.
func completeMachines(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	files, _ := readMachines(nil)
	for _, f := range files {
		if f.machine != nil {
			names = append(names, f.machine.Name())
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
