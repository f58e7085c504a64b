package program

import (
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Words say in one line what opens the edge, its reason in parentheses.
func (e Edge) Words() string {
	words := e.opens()
	if e.Reason != "" {
		words += " (" + e.Reason + ")"
	}
	for i, a := range e.Sets {
		words += []string{", sets ", ", "}[min(i, 1)] + a.Name + " = " + a.Text
	}
	return words
}

func (e Edge) opens() string {
	switch e.Kind {
	case EdgeRequire:
		return "unless " + strings.TrimSuffix(strings.TrimPrefix(e.Guard, "!("), ")")
	case EdgeNext:
		return e.when()
	case EdgeTimeout:
		return "after " + e.Guard
	case EdgeRetry:
		if strings.Contains(e.Guard, "error") {
			return "after " + e.Guard
		}
		return "after " + e.Guard + " that fail"
	case EdgeError:
		if e.Guard == string(ClassAny) {
			return "on any error"
		}
		return "on a " + e.Guard + " error"
	case EdgeDelete:
		return "deletion"
	}
	return "from an older revision"
}

// when tells an exit that is the only one from one that is left when the others
// are closed.
func (e Edge) when() string {
	switch {
	case e.Guard != "":
		return "when " + e.Guard
	case strings.HasSuffix(e.Path, ".next[0].to"):
		return "always"
	}
	return "otherwise"
}

// StayWords say what a phase has besides its edges: a timeout that only tells, a
// deletion that leads nowhere else, effects that stay for good.
func StayWords(p *v1alpha1.Phase) []string {
	var all []string
	if t := p.Timeout; t != nil && t.Stalled != "" {
		all = append(all, "after "+TimeoutText(t)+": Stalled ("+t.Stalled+"), and stays")
	}
	if d := p.OnDelete; d != nil && d.Hold != "" {
		all = append(all, "deletion: held ("+d.Hold+")")
	}
	if d := p.OnDelete; d != nil && d.Immediate {
		all = append(all, "deletion: removed at once")
	}
	if len(p.Keeps) > 0 {
		all = append(all, "keeps for good: "+strings.Join(p.Keeps, ", "))
	}
	return all
}
