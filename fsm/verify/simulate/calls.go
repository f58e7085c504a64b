package simulate

import (
	"maps"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// calls are the actions that a machine calls, by the name that it calls them.
func calls(prog *program.Program) map[string]string {
	all := map[string]string{}
	add := func(name, use string) {
		if name != "" {
			all[name], all[use] = use, use
		}
	}
	for _, e := range prog.Effects {
		add(e.Acquire, e.BoundAcquire.Use)
		add(e.ReleasedBy(), e.BoundRelease.Use)
	}
	for _, p := range prog.Order {
		for _, s := range p.StepList {
			add(s.Action, s.Bound.Use)
		}
	}
	return all
}

// stepCalls are the actions that steps call, by PHASE/STEP, and by STEP where that means one action and nothing else.
func stepCalls(prog *program.Program) map[string]string {
	all, actions, several := map[string]string{}, calls(prog), map[string]bool{}
	for _, p := range prog.Order {
		for _, s := range p.StepList {
			if s.Action == "" {
				continue
			}
			all[p.Name+"/"+s.Label] = s.Bound.Use
			several[s.Label] = several[s.Label] || actions[s.Label] != "" || all[s.Label] != "" && all[s.Label] != s.Bound.Use
			all[s.Label] = s.Bound.Use
		}
	}
	maps.DeleteFunc(all, func(name, _ string) bool { return several[name] })
	return all
}
