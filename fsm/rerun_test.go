package fsm

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// targetBindings are as those of the built-in actions.
func targetBindings() program.Bindings {
	target := func(more ...string) map[string]program.Param {
		params := map[string]program.Param{}
		for _, name := range []string{"apiVersion", "kind", "namespace", "name"} {
			params[name] = program.Param{Type: expr.TypeString}
		}
		for _, name := range more {
			params[name] = program.Param{Type: expr.TypeAny}
		}
		return params
	}
	return program.Bindings{Guards: testBindings.Guards, Actions: map[string]program.ActionSpec{
		"Read":   {Params: target("fields"), Outputs: map[string]expr.Type{"object": expr.TypeObject}, Reads: &program.Target{Param: "fields", Fields: []string{"metadata.generation", "status"}}},
		"Await":  {Params: target(), Reads: &program.Target{Fields: []string{"status"}, Waits: true}},
		"Patch":  {Params: target("patch"), Writes: &program.Target{Param: "patch"}},
		"Apply":  {Params: map[string]program.Param{"manifest": {Type: expr.TypeObject}}, Writes: &program.Target{Manifest: "manifest", Param: "manifest"}},
		"Delete": {Params: target(), Writes: &program.Target{}},
		"Work":   {Params: map[string]program.Param{"any": {Type: expr.TypeAny}}, Outputs: map[string]expr.Type{"n": expr.TypeInt}},
	}}
}

func TestWhatIsReadAndThenChanged(t *testing.T) {
	const (
		app    = "apiVersion: apps/v1, kind: Deployment, name: '${self.spec.app}'"
		read   = "{action: Read, with: {" + app + ", fields: [spec.replicas]}}"
		status = "{action: Read, with: {" + app + "}, until: 'result.object.status.replicas == 0', poll: 5s}"
		stop   = "{name: Stop, action: Patch, with: {" + app + ", patch: {spec: {replicas: 0}}}}"
		note   = "{name: Note, action: Patch, with: {" + app + ", patch: {metadata: {annotations: {a.b/c: '${string(result.object.spec.replicas)}'}}}}}"
		use    = "{action: Work, with: {any: '${result.object.spec.replicas}'}}"
		start  = "{name: Start, action: Patch, with: {" + app + ", patch: {spec: {replicas: '${result.object.spec.replicas}'}}}}"
		up     = "{name: Start, action: Patch, with: {" + app + ", patch: {spec: {replicas: 3}}}}"
	)
	for name, c := range map[string]struct {
		why   string
		steps []string
		phase string // more of it
		want  string // part of the message; empty: no finding
	}{
		"noted, then changed":         {why: "the example of the issue", steps: []string{read, stop, "{action: Work}", start}, want: "step Read reads spec.replicas, which the later step Stop changes"},
		"noted in an annotation":      {why: "what is noted outlives the phase", steps: []string{read, note, stop}, want: "spec.replicas, which the later step Stop"},
		"read and used before":        {why: "it is used again, when the phase is run again", steps: []string{read, use, stop}, want: "spec.replicas"},
		"nobody uses it":              {why: "nothing depends on it", steps: []string{read, stop}},
		"only in a message":           {why: "it is for people", steps: []string{read, stop}, phase: "    message: '${result.object.spec.replicas}'\n"},
		"in an exit":                  {why: "where it leads depends on it", steps: []string{read, stop}, phase: "    next: [{to: Done, when: 'result.object.spec.replicas == 3'}]\n", want: "spec.replicas"},
		"in its own until":            {why: "it would wait for ever", steps: []string{strings.TrimSuffix(read, "}") + ", until: 'result.object.spec.replicas == 3', poll: 5s}", stop}, want: "spec.replicas"},
		"other fields":                {why: "they are not changed", steps: []string{read, note, "{action: Work}"}},
		"part of what is read":        {why: "it is in it", steps: []string{strings.Replace(read, "spec.replicas", "spec", 1), use, stop}, want: "spec.replicas"},
		"more than what is read":      {why: "it has it in it", steps: []string{read, use, "{name: Stop, action: Patch, with: {" + app + ", patch: {spec: null}}}"}, want: "reads spec,"},
		"another object":              {why: "it is not the one", steps: []string{read, use, strings.Replace(stop, "self.spec.app", "self.spec.other", 1)}},
		"another kind":                {why: "it is not the one", steps: []string{read, use, strings.Replace(stop, "kind: Deployment", "kind: StatefulSet", 1)}},
		"another version":             {why: "it is the same object", steps: []string{read, use, strings.Replace(stop, "apps/v1", "apps/v2", 1)}, want: "spec.replicas"},
		"its own namespace":           {why: "it is where it is looked for anyway", steps: []string{read, use, strings.Replace(stop, "kind:", "namespace: '${self.metadata.namespace}', kind:", 1)}, want: "spec.replicas"},
		"status":                      {why: "it follows the spec", steps: []string{status, stop}, want: "spec.replicas"},
		"status, brought about":       {why: "the first step stops it again", steps: []string{stop, status, "{action: Work}", up}},
		"brought about if":            {why: "it may be left out", steps: []string{strings.TrimSuffix(stop, "}") + ", if: 'guards.a'}", status, up}, want: "which the later step Start changes"},
		"something else before":       {why: "that does not stop it", steps: []string{strings.Replace(stop, "replicas: 0", "paused: true", 1), status, up}, want: "spec.replicas"},
		"deleted":                     {why: "there is nothing to read any more", steps: []string{read, use, "{action: Delete, with: {" + app + "}}"}, want: "reads an object, which the later step Delete changes"},
		"made, awaited and deleted":   {why: "it is made again", steps: []string{"{action: Apply, with: {manifest: {apiVersion: apps/v1, kind: Deployment, metadata: {name: '${self.spec.app}'}}}}", status, "{action: Delete, with: {" + app + "}}"}},
		"applied":                     {why: "as by a patch", steps: []string{read, use, "{action: Apply, with: {manifest: {apiVersion: apps/v1, kind: Deployment, metadata: {name: '${self.spec.app}'}, spec: {replicas: 1}}}}"}, want: "spec.replicas"},
		"all of a kind":               {why: "it is one of them", steps: []string{read, use, "{action: Delete, with: {apiVersion: apps/v1, kind: Deployment}}"}, want: "an object"},
		"awaited":                     {why: "the action waits for it", steps: []string{"{action: Await, with: {" + app + "}}", stop}, want: "spec.replicas"},
		"whether it is to be written": {why: "it has been written then", steps: []string{read, strings.TrimSuffix(stop, "}") + ", if: 'result.object.spec.replicas > 0'}"}},
		"read again":                  {why: "what is used was read after the change", steps: []string{read, stop, strings.Replace(read, "{", "{name: Again, ", 1), use}},
		"steady":                      {why: "each look is such a run", steps: []string{read, use, stop}, phase: "    kind: steady\n"},
		"undo":                        {why: "a release changes it", steps: []string{read, use, "{undo: held}"}, want: "which the later step undo changes"},
	} {
		t.Run(name, func(t *testing.T) {
			file := `  - name: One
    poll: 5s
    steps:
    - ` + strings.Join(c.steps, "\n    - ") + "\n" + c.phase + `    timeout: {after: 1h, to: Done}
    onDelete: {to: Out}
`
			if !strings.Contains(c.phase, "next:") {
				file += "    next: [{to: Done}]\n"
			}
			file = strings.Replace(phases(file+rest), "  effects: [{name: lock, acquire: Take, release: Give}]\n",
				"  actions:\n  - {name: Take, use: Patch, with: {"+app+", patch: {spec: {paused: true}}}}\n  - {name: Give, use: Patch, with: {"+app+", patch: {spec: {paused: false, replicas: 1}}}}\n  effects: [{name: lock, acquire: Take, release: Give}]\n", 1)
			var got []string
			for _, d := range load(file, targetBindings()) {
				if d.Code == "PG106" {
					got = append(got, d.Message)
				} else if d.Severity != diag.SeverityWarning {
					t.Error(d)
				}
			}
			want := 1
			if c.want == "" {
				want = 0
			}
			if len(got) != want || want == 1 && !strings.Contains(got[0], c.want) {
				t.Errorf("%s: got %q, want %q", c.why, got, c.want)
			}
		})
	}
}
