package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
)

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

// isPath tells a file or directory from the name of a machine.
func isPath(text string) bool {
	_, err := os.Stat(text)
	return text != "" && (err == nil || strings.ContainsAny(text, `/\`) || strings.HasSuffix(text, ".yaml"))
}
