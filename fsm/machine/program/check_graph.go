package program

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// check finds what is wrong with them, and makes the events.
func (g *graph) check() {
	g.checkKind()
	g.checkMachineName()
	g.checkTargets()
	g.events()
	g.checkReachable()
	g.checkFinalizer()
	g.checkWatches("spec", g.def.Spec.Watch)
	for _, p := range g.prog.Order {
		g.checkWatches(p.Path, p.Watch)
		g.checkName(p)
		g.checkDeadEnd(p)
		g.checkShadowed(p)
		g.checkOnDelete(p)
		g.checkLiveness(p)
	}
}

// checkKind: the actions of a program of its own read and write objects of one kind.
func (g *graph) checkKind() {
	if want, got := g.of, g.def.Spec.For; want.Kind != "" && got != want {
		g.find("spec.for", "PG000", fmt.Sprintf("machine %s drives %s %s in this program, not %s %s", g.def.Metadata.Name, want.APIVersion, want.Kind, got.APIVersion, got.Kind),
			fmt.Sprintf("write {apiVersion: %s, kind: %s}, or give the machine another name", want.APIVersion, want.Kind))
	}
}

func (g *graph) checkTargets() {
	if g.prog.Phases[g.def.Spec.Initial] == nil {
		g.find("spec.initial", "PG001", fmt.Sprintf("initial phase %q does not exist", g.def.Spec.Initial), g.prog.knownPhases(g.def.Spec.Initial))
	}
	g.checkUpgrade()
	for _, p := range g.prog.Order {
		for _, e := range p.Edges() {
			if g.prog.Phases[e.To] == nil {
				g.find(e.Path, "PG001", fmt.Sprintf("phase %q does not exist", e.To), g.prog.knownPhases(e.To))
			}
		}
	}
}

// knownPhases says what could be written in place of the name of a phase.
func (prog *Program) knownPhases(name string) string {
	return diag.Instead(name, "phases of this machine", prog.Names())
}

// checkReachable follows the ways from the initial phase, and those to an end. With
// a target that does not exist the ways are not those that the author has in mind.
func (g *graph) checkReachable() {
	if slices.ContainsFunc(g.diags, func(d diag.Diagnostic) bool { return d.Code == "PG001" }) {
		return
	}
	start := []string{g.def.Spec.Initial}
	for _, q := range g.prog.Recover {
		start = append(start, q.To)
	}
	_, seen := g.prog.Walk(anyEdge, start...)
	for _, p := range g.prog.Order {
		if _, reached := seen[p.Name]; !reached {
			g.find(p.Path+".name", "PG002", fmt.Sprintf("phase %s is unreachable", p.Name), "add an exit that leads to it, or remove it")
		}
	}
	for _, p := range g.endless() {
		g.find(p.Path+".name", "PG009", fmt.Sprintf("no end phase is reachable from %s: its object could never be deleted", p.Name),
			"add onDelete: {to: P} and lead P to a phase with end: true")
	}
}

// endless are the phases from which no end is reachable; without those that only
// lead to others of them, unless they go round in a circle.
func (g *graph) endless() []*Phase {
	var all, last []*Phase
	for _, p := range g.prog.Order {
		ahead, _ := g.prog.Walk(anyEdge, p.Name)
		if slices.ContainsFunc(ahead, func(q *Phase) bool { return q.End || q.OnDelete != nil && q.OnDelete.Immediate }) {
			continue
		}
		all = append(all, p)
		if !slices.ContainsFunc(p.Edges(), func(e Edge) bool { return e.To != p.Name }) {
			last = append(last, p)
		}
	}
	if len(last) == 0 {
		return all
	}
	return last
}

func (g *graph) checkFinalizer() {
	if name := g.def.Spec.Finalizer; name != "" {
		const fix = "write DOMAIN/NAME, with a domain of yours: example.com/maintenance"
		if flaws := validation.IsQualifiedName(name); len(flaws) > 0 {
			g.find("spec.finalizer", "PG000", fmt.Sprintf("%q is no finalizer, and the API server refuses it: %s", name, flaws[0]), fix)
		} else if !strings.Contains(name, "/") {
			g.warn("spec.finalizer", "PG000", fmt.Sprintf("finalizer %q has no domain: the API server warns of it, and another program may take it for its own", name), fix)
		}
		return
	}
	needs := len(g.def.Spec.Effects) > 0
	for _, p := range g.prog.Order {
		needs = needs || p.Deletion
	}
	if needs {
		g.find("spec", "PG017", "the machine has effects or deletion phases but no finalizer: a deletion would skip them", "add finalizer: DOMAIN/NAME")
	}
}

// checkMachineName: the name is a label of metrics and the controller that Events
// report.
func (g *graph) checkMachineName() {
	if flaws := validation.IsDNS1123Subdomain(g.def.Metadata.Name); len(flaws) > 0 {
		g.find("metadata.name", "PG000", fmt.Sprintf("%q is not a name for a machine", g.def.Metadata.Name), flaws[0])
	}
}

var reservedPrefixes = []string{"before_", "after_", "enter_", "leave_"}

// shownName is what status.phase may hold; the CRDs say the same.
var shownName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// checkName refuses the names that libraries of state machines read as
// callbacks, and those that a status could not show.
func (g *graph) checkName(p *Phase) {
	reserved := p.Name == "event" || p.Name == "state"
	for _, prefix := range reservedPrefixes {
		reserved = reserved || strings.HasPrefix(p.Name, prefix)
	}
	if reserved {
		g.find(p.Path+".name", "PG015", fmt.Sprintf("%q is a reserved name", p.Name), "rename the phase")
	}
	g.checkShown(p.Path+".name", p.Name)
	g.checkShown(p.Path+".showAs", p.ShowAs)
}

func (f *findings) checkShown(path, name string) {
	if name != "" && !shownName.MatchString(name) {
		f.find(path, "PG015", fmt.Sprintf("%q cannot be shown in status.phase", name),
			"begin with a letter, use letters, digits, - and _, at most 63")
	}
}

func (g *graph) checkDeadEnd(p *Phase) {
	if p.Terminal != "" || p.End || p.Kind == v1alpha1.PhaseSteady || len(p.Next) > 0 {
		return
	}
	if p.Timeout != nil && p.Timeout.To != "" {
		return
	}
	g.find(p.Path+".name", "PG003", fmt.Sprintf("phase %s is a dead end: not terminal, not end, no exit", p.Name),
		"add next:, or terminal: success|failure, or end: true")
}

func (g *graph) checkShadowed(p *Phase) {
	seen := map[string]int{}
	for i, x := range p.Next {
		path := fmt.Sprintf("%s.next[%d]", p.Path, i)
		if open, ok := seen[""]; ok {
			g.find(path, "PG004", fmt.Sprintf("next[%d] is never taken: next[%d] is always open", i, open), "put the exit that is always open last, and have only one")
			continue
		}
		if first, ok := seen[x.When]; ok {
			g.find(path, "PG004", fmt.Sprintf("next[%d] is never taken: next[%d] has the same when", i, first), "remove one of them")
		}
		if p.Exits[i].always() {
			seen[""] = i
		}
		seen[x.When] = i
	}
}

func (x Exit) always() bool {
	if v, is := x.WhenExpr.Constant(); is {
		return v == types.True
	}
	tree := expr.Parse(x.When)
	return tree != nil && expr.Decide(tree.Expr(), func(celast.Expr) expr.Truth { return expr.Perhaps }) == expr.Always
}

// checkWatches: a watch is set up once for all objects.
func (g *graph) checkWatches(path string, all []v1alpha1.Watch) {
	for i, w := range all {
		for field, text := range map[string]string{"apiVersion": w.APIVersion, "kind": w.Kind, "name": w.Name} {
			if strings.Contains(text, "${") {
				g.find(fmt.Sprintf("%s.watch[%d].%s", path, i, field), "PG000", fmt.Sprintf("%s of a watch is %q, which no object is called: a watch knows no expressions", field, text),
					"write owned: true for what this machine makes, leave the watch out and rely on poll:, or name one object plainly")
			}
		}
	}
}

func (g *graph) checkOnDelete(p *Phase) {
	if p.Deletion {
		return
	}
	fix := "add onDelete: {to: PHASE}, {hold: TEXT} or {immediate: true}"
	if p.OnDelete == nil {
		g.find(p.Path+".name", "PG008", fmt.Sprintf("phase %s does not say what a deletion does", p.Name), fix)
		return
	}
	if Count(p.OnDelete.To != "", p.OnDelete.Hold != "", p.OnDelete.Immediate) != 1 {
		g.find(p.Path+".onDelete", "PG008", "onDelete must have exactly one of to, hold and immediate", fix)
	}
}

// checkLiveness finds phases that could sleep for ever.
func (g *graph) checkLiveness(p *Phase) {
	if p.End || p.Terminal != "" || g.wakes(p) {
		return
	}
	open := len(p.Exits) > 0 && p.Exits[len(p.Exits)-1].When == ""
	if !open && p.PollEvery == 0 {
		g.find(p.Path+".name", "PG010", fmt.Sprintf("phase %s could sleep for ever: every exit has a guard and nothing makes it look again", p.Name),
			"add poll: 10s, watch: or timeout: with to:")
	}
}

// wakes tells whether a phase looks again without a poll. A timeout that only
// says so would leave it asleep.
func (g *graph) wakes(p *Phase) bool {
	return len(p.Watch) > 0 || len(g.def.Spec.Watch) > 0 || p.Timeout != nil && p.Timeout.To != ""
}
