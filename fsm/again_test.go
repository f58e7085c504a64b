package fsm

import (
	"strings"
	"testing"
)

// findingOf checks for a part of the one message of a code that the file gets; empty: it gets none.
func findingOf(t *testing.T, why, code, file, want string) {
	t.Helper()
	var got []string
	for _, d := range load(file, targetBindings()) {
		if d.Code == code {
			got = append(got, d.Message)
		} else {
			t.Logf("besides: %v", d)
		}
	}
	if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
		t.Errorf("%s: got %q, want %q", why, got, want)
	}
}

// A step may be called again, after a crash or with its phase: what counts in it counts twice.
func TestAStepThatCounts(t *testing.T) {
	const own = "apiVersion: v1, kind: ConfigMap, name: '${self.metadata.name}'"
	count := func(value string) string {
		return "{action: Patch, with: {" + own + ", patch: {data: {wave: \"" + value + "\"}}}}"
	}
	for name, c := range map[string]struct{ why, step, variables, want string }{
		"counts":              {"the wave is counted twice", count("${string(int(self.data.wave) + 1)}"), "", "step Patch computes data.wave from itself"},
		"counts by a name":    {"the same field", count("${string(int(self.data['wave']) + 1)}"), "", "data.wave"},
		"counts by variables": {"the same through others", count("${variables.next}"), "  variables: [{name: wave, expr: 'int(self.data.wave)'}, {name: next, expr: 'string(variables.wave + 1)'}]\n", "data.wave"},
		"appends":             {"the text grows twice", count("${self.data.wave + 'x'}"), "", "data.wave"},
		"copies":              {"it is the same again", count("${self.data.wave}"), "", ""},
		"of another field":    {"which no step changes", count("${string(self.spec.wave + 1)}"), "", ""},
		"of another object":   {"what is read is of the object", strings.Replace(count("${string(int(self.data.wave) + 1)}"), "self.metadata.name", "self.spec.other", 1), "", ""},
		"not in the sum":      {"it decides only whether", count("${has(self.data.wave) ? self.data.wave : string(self.spec.a + 1)}"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := phases(`  - name: One
    poll: 5s
    steps: [` + c.step + `]
    next: [{to: Done}]
    timeout: {after: 1h, to: Done}
    onDelete: {to: Out}
` + rest)
			file = strings.Replace(file, "  effects: [{name: lock, acquire: Take, release: Give}]\n", c.variables, 1)
			findingOf(t, c.why, "PG106", strings.Replace(file, "{undo: held}", "{action: Work}", 1), c.want)
		})
	}
}

// A loop over an effect would meet it held, with the values of its first round.
func TestTakenAgainWithOtherValues(t *testing.T) {
	machine := func(steps, weigh, between string) string {
		file := phases(`  - name: One
    poll: 5s
    steps: [` + strings.Replace(steps, "{action: Take", "{action: Take, with: {patch: {spec: {replicas: "+weigh+"}}}", 1) + `]
    next: [{to: Two}]
    timeout: {after: 1h, to: Out}
    onDelete: {to: Out}
  - name: Two
    poll: 5s
    steps: [` + between + `]
    next: [{to: One, when: 'guards.a'}, {to: Done}]
    timeout: {after: 1h, to: Out}
    onDelete: {to: Out}
` + rest)
		const app = "apiVersion: apps/v1, kind: Deployment, name: web"
		return strings.Replace(file, "  effects: [{name: lock, acquire: Take, release: Give}]\n",
			"  actions:\n  - {name: Take, use: Patch, with: {"+app+", patch: {spec: {replicas: 0}}}}\n  - {name: Give, use: Patch, with: {"+app+", patch: {spec: {replicas: 1}}}}\n  effects: [{name: lock, acquire: Take, release: Give}]\n", 1)
	}
	const count = "{name: Count, action: Work}"
	for name, c := range map[string]struct{ why, steps, weigh, between, want string }{
		"a loop":               {"the second round takes nothing", count + ", {action: Take}", "'${result.n}'", "{action: Work}", "One is entered while lock may be held, and step Take takes it with patch, which is found anew"},
		"by a variable":        {"the same", count + ", {action: Take}", "'${variables.n}'", "{action: Work}", "with patch"},
		"released":             {"it is taken anew", count + ", {action: Take}", "'${result.n}'", "{action: Give}", ""},
		"released if":          {"it may be held still", count + ", {action: Take}", "'${result.n}'", "{action: Give, if: 'guards.b'}", "with patch"},
		"released before":      {"in the phase itself", count + ", {action: Give}, {action: Take}", "'${result.n}'", "{action: Work}", ""},
		"only while it is not": {"the author has seen to it", count + `, {action: Take, if: '!("lock" in held)'}`, "'${result.n}'", "{action: Work}", ""},
		"of the object":        {"the same as before, unless somebody edits it, which is said then", "{action: Take}", "'${self.spec.replicas}'", "{action: Work}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := machine(c.steps, c.weigh, c.between)
			if strings.Contains(c.weigh, "variables") {
				file = strings.Replace(file, "  actions:\n", "  variables: [{name: n, expr: 'result.n'}]\n  actions:\n", 1)
			}
			findingOf(t, c.why, "PG021", file, c.want)
		})
	}
}
