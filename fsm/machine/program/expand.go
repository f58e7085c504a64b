package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// What a file may say in short is written out when it is read, before anything else looks at it: all that follows, the revisions
// included, is the same as if the file said it in full. Findings point at where it is said.

// Phases that `failure: undo` and `deletion: undo` add.
const (
	wayUndo          = "undo"
	phaseRollingBack = "RollingBack"
	phaseFailed      = "Failed"
	phaseAborting    = "Aborting"
	phaseDeleted     = "Deleted"
)

// expand answers what is wrong with what a file says in short.
func (d *Definition) expand() diag.Diagnostics {
	x := &expansion{findings: findings{def: d}, made: map[string]string{}}
	x.stepLists()
	x.ways()
	d.Spec.StepLists, d.Spec.Failure, d.Spec.Deletion = nil, "", ""
	d.Stand(x.made)
	return x.diags
}

type expansion struct {
	findings
	// made is what was written out, by its path, and where it is from.
	made map[string]string
}

func (x *expansion) stepLists() {
	lists := x.def.Spec.StepLists
	size := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		x.checkList("spec.stepLists."+name, name, lists[name])
		data, _ := json.Marshal(lists[name]) // plain values
		size[name] = len(data)
	}
	used, written := map[string]bool{}, 0
	for i := range x.def.Spec.Phases {
		p := &x.def.Spec.Phases[i]
		if !slices.ContainsFunc(p.Steps, func(s v1alpha1.Step) bool { return s.Use != "" }) {
			continue
		}
		var steps []v1alpha1.Step
		add := func(s v1alpha1.Step, from string) {
			x.made[fmt.Sprintf("spec.phases[%d].steps[%d]", i, len(steps))] = from
			steps = append(steps, s)
		}
		for j, s := range p.Steps {
			at := fmt.Sprintf("spec.phases[%d].steps[%d]", i, j)
			if s.Use == "" {
				add(s, at)
				continue
			}
			x.checkUse(at, s)
			used[s.Use] = true
			if written += size[s.Use]; written > diag.MaxFileSize { // in full it would be refused, too
				x.find(at+".use", "PG000", fmt.Sprintf("the step lists come to more than %d bytes, written out", diag.MaxFileSize), "use shorter lists, or fewer of them")
				return
			}
			for k, s := range lists[s.Use] {
				add(s, fmt.Sprintf("spec.stepLists.%s[%d]", p.Steps[j].Use, k))
			}
		}
		p.Steps = steps
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if !used[name] {
			x.find("spec.stepLists."+name, "PG000", fmt.Sprintf("step list %s is used by no phase", name), "write - use: "+name+" in the steps of a phase, or remove it")
		}
	}
}

func (x *expansion) checkList(path, name string, steps []v1alpha1.Step) {
	if !expr.Identifier.MatchString(name) {
		x.find(path, "PG000", fmt.Sprintf("%q is not a name for a step list", name), "write at most 63 letters, digits and _, a letter first")
	}
	if len(steps) == 0 {
		x.find(path, "PG000", fmt.Sprintf("step list %s is empty", name), "give it steps, or remove it")
	}
	for i, s := range steps {
		if s.Use != "" {
			x.find(fmt.Sprintf("%s[%d].use", path, i), "PG000", "a step list uses no other one", "write the steps out, or use both lists in the phase")
		}
	}
}

func (x *expansion) checkUse(path string, s v1alpha1.Step) {
	if _, known := x.def.Spec.StepLists[s.Use]; !known {
		x.find(path+".use", "PG005", fmt.Sprintf("step list %q is not there", s.Use),
			diag.Instead(s.Use, "spec.stepLists", slices.Sorted(maps.Keys(x.def.Spec.StepLists))))
	}
	if hashOf(s) != hashOf(v1alpha1.Step{Use: s.Use}) {
		x.find(path, "PG000", "a step with use has nothing beside it: it stands for the steps of the list", "remove the rest, or write it in the list")
	}
}

// ways adds the phases that failure and deletion stand for.
func (x *expansion) ways() {
	spec := &x.def.Spec
	for _, way := range []struct{ path, says string }{{"spec.failure", spec.Failure}, {"spec.deletion", spec.Deletion}} {
		if way.says != "" && way.says != wayUndo {
			x.find(way.path, "PG000", fmt.Sprintf("%s is %q", way.path, way.says), "write undo, or leave it out and write the phases")
		}
	}
	undo, stays := []v1alpha1.Step{{Undo: UndoHeld}}, &v1alpha1.Timeout{After: "1h", Stalled: "RollbackStalled"}
	if spec.Failure == wayUndo {
		back := v1alpha1.Phase{Name: phaseRollingBack, Description: "What is held is released.", Steps: undo,
			Next: []v1alpha1.Exit{{To: phaseFailed, Reason: "RolledBack"}}, Timeout: stays}
		failed := v1alpha1.Phase{Name: phaseFailed, Description: "It failed, and what was held is released.", Terminal: v1alpha1.PhaseFailure}
		if spec.Deletion == "" { // what a deletion would do is done already
			back.OnDelete, failed.OnDelete = &v1alpha1.OnDelete{Hold: "Waiting until what is held is released"}, &v1alpha1.OnDelete{Immediate: true}
		}
		x.phase("spec.failure", back)
		x.phase("spec.failure", failed)
	}
	if spec.Deletion == wayUndo {
		for i := range spec.Phases {
			if p := &spec.Phases[i]; p.OnDelete == nil && !p.Deletion {
				p.OnDelete = &v1alpha1.OnDelete{To: phaseAborting}
				x.made[fmt.Sprintf("spec.phases[%d].onDelete", i)] = "spec.deletion"
			}
		}
		x.phase("spec.deletion", v1alpha1.Phase{Name: phaseAborting, Description: "Deleted: what is held is released.", Deletion: true, Steps: undo,
			Next: []v1alpha1.Exit{{To: phaseDeleted, Reason: "Aborted"}}, Timeout: stays})
		x.phase("spec.deletion", v1alpha1.Phase{Name: phaseDeleted, Deletion: true, End: true})
	}
}

// phase adds a phase unless the file has its own of that name.
func (x *expansion) phase(from string, p v1alpha1.Phase) {
	spec := &x.def.Spec
	if slices.ContainsFunc(spec.Phases, func(own v1alpha1.Phase) bool { return own.Name == p.Name }) {
		return
	}
	x.made[fmt.Sprintf("spec.phases[%d]", len(spec.Phases))] = from
	spec.Phases = append(spec.Phases, p)
}
