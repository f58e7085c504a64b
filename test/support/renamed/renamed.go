// Package renamed gives a machine file other names throughout: its phases, steps, effects and
// reasons. What a program does with such a file is what it does with the original one, but for
// the names; what does not come out the same knows a name of the shipped file.
package renamed

import (
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// The names are the old ones behind these. No text of the program has them.
const (
	Prefix       = "Zz"
	effectPrefix = "zz"
)

// Back gives a text that the program made with a renamed file the names of the original.
func Back(text string) string {
	return strings.NewReplacer(Prefix, "", effectPrefix, "").Replace(text)
}

func name(of string) string {
	if of == "" {
		return ""
	}
	return Prefix + of
}

func effect(of string) string { return effectPrefix + of }

// File is a machine file with other names. status.phase goes on showing the old ones of
// phases, which another project's API prescribes.
func File(data []byte) ([]byte, error) {
	var m v1alpha1.Machine
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return nil, err
	}
	texts := quoted(&m)
	m.Spec.Initial = name(m.Spec.Initial)
	for i := range m.Spec.Effects {
		m.Spec.Effects[i].Name = effect(m.Spec.Effects[i].Name)
	}
	for i := range m.Spec.Recover {
		r := &m.Spec.Recover[i]
		r.To, r.Reason = name(r.To), name(r.Reason)
		for j := range r.Holds {
			r.Holds[j] = effect(r.Holds[j])
		}
	}
	for i := range m.Spec.Phases {
		phase(&m.Spec.Phases[i])
	}
	data, err := yaml.Marshal(m)
	return []byte(texts.ReplaceAllStringFunc(string(data), func(found string) string {
		if inner := strings.Trim(found, `\"`); isEffect(&m, inner) {
			return strings.Replace(found, inner, effect(inner), 1)
		}
		return strings.Replace(found, `"`, `"`+Prefix, 1)
	})), err
}

func isEffect(m *v1alpha1.Machine, was string) bool {
	for _, e := range m.Spec.Effects {
		if e.Name == effect(was) {
			return true
		}
	}
	return false
}

// quoted finds the names of phases and effects in expressions.
func quoted(m *v1alpha1.Machine) *regexp.Regexp {
	var names []string
	for _, p := range m.Spec.Phases {
		names = append(names, p.Name)
	}
	for _, e := range m.Spec.Effects {
		names = append(names, e.Name)
	}
	return regexp.MustCompile(`\\?"(` + strings.Join(names, "|") + `)\\?"`)
}

func phase(p *v1alpha1.Phase) {
	if p.ShowAs == "" {
		p.ShowAs = p.Name
	}
	p.Name = name(p.Name)
	for i := range p.Require {
		p.Require[i].Else, p.Require[i].Reason = name(p.Require[i].Else), name(p.Require[i].Reason)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Name = name(program.StepName(*s))
		retry(s.Retry)
	}
	for i := range p.Next {
		p.Next[i].To, p.Next[i].Reason = name(p.Next[i].To), name(p.Next[i].Reason)
	}
	if t := p.Timeout; t != nil {
		t.To, t.Reason, t.Stalled = name(t.To), name(t.Reason), name(t.Stalled)
	}
	retry(p.Retry)
	for i := range p.OnError {
		p.OnError[i].To, p.OnError[i].Reason = name(p.OnError[i].To), name(p.OnError[i].Reason)
	}
	if p.OnDelete != nil {
		p.OnDelete.To = name(p.OnDelete.To)
	}
	for i := range p.Keeps {
		p.Keeps[i] = effect(p.Keeps[i])
	}
}

func retry(r *v1alpha1.Retry) {
	if r != nil {
		r.To = name(r.To)
	}
}

// Status gives the state of an object the names of the renamed file.
func Status(st *v1alpha1.MachineStatus) {
	st.Phase, st.Step = name(st.Phase), name(st.Step)
	for i := range st.Held {
		st.Held[i].Name = effect(st.Held[i].Name)
	}
	for i := range st.Blocked {
		st.Blocked[i].To, st.Blocked[i].Step = name(st.Blocked[i].To), name(st.Blocked[i].Step)
	}
	if st.OnDelete != nil {
		st.OnDelete.To = name(st.OnDelete.To)
	}
	for i := range st.History {
		t := &st.History[i]
		if t.From != "" { // the reason of the first is the engine's
			t.Reason = name(t.Reason)
		}
		t.From, t.To = name(t.From), name(t.To)
	}
}
