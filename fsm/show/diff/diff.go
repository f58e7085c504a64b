// Package diff tells what changed between two revisions of a machine, and what
// that means for objects that are under way.
//
// It compares files and stored statuses; it runs nothing and knows no cluster.
package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Report is what changed, in words.
type Report struct {
	Old string `json:"old"`
	New string `json:"new"`
	// Machine lists the changes outside of phases.
	Machine []string `json:"machine,omitempty"`
	Phases  []Change `json:"phases,omitempty"`
	// Dangers are what could strand an object or leak an effect.
	Dangers []string `json:"dangers,omitempty"`
	// Impacts are those of live objects, where they were looked at.
	Impacts []Impact `json:"impacts,omitempty"`
}

// Change is what happened to one phase.
type Change struct {
	Phase string `json:"phase"`
	// What is added, removed, renamed or changed.
	What string `json:"what"`
	// Was is the old name of a phase that objects are mapped from.
	Was   string   `json:"was,omitempty"`
	Words []string `json:"words,omitempty"`
}

// Machines compares two revisions.
func Machines(older, newer *program.Definition) Report {
	r := Report{Old: label(older), New: label(newer)}
	r.Machine = changes(withoutPhases(older.Spec), withoutPhases(newer.Spec))
	if older.Metadata.Name != newer.Metadata.Name {
		r.Machine = append(r.Machine, fmt.Sprintf("another machine: %s, not %s", newer.Metadata.Name, older.Metadata.Name))
	}
	olds, news := byName(older.Spec.Phases), byName(newer.Spec.Phases)
	mapped := adoption(newer).PhaseMap
	for _, p := range newer.Spec.Phases {
		if old, ok := olds[p.Name]; ok {
			if words := changes(old, p); len(words) > 0 {
				r.Phases = append(r.Phases, Change{Phase: p.Name, What: "changed", Words: words})
			}
			continue
		}
		r.Phases = append(r.Phases, arrived(p, olds, mapped))
	}
	r.gone(older, news, mapped)
	upgrade := adoption(newer)
	r.Machine = append(r.Machine, renamed("effect", upgrade.EffectMap)...)
	r.Machine = append(r.Machine, renamed("step", upgrade.StepMap)...)
	r.Machine = append(r.Machine, renamed("request", upgrade.RequestMap)...)
	if was := older.Spec.Finalizer; was != "" && was != newer.Spec.Finalizer {
		r.Machine = append(r.Machine, fmt.Sprintf("objects that exist keep the finalizer %s until they end", was))
	}
	for _, name := range older.EffectNames() {
		if !slices.Contains(newer.EffectNames(), name) && upgrade.EffectMap[name] == "" {
			r.Dangers = append(r.Dangers, fmt.Sprintf("effect %s is gone and spec.upgrade.effectMap does not say what follows it: an object that holds it releases it by `undo: held` only, as it is on record", name))
		}
	}
	return r
}

// gone tells of the phases that the new revision does not have, but for those that it has under another name.
func (r *Report) gone(older *program.Definition, news map[string]v1alpha1.Phase, mapped map[string]string) {
	for _, p := range older.Spec.Phases {
		if _, stays := news[p.Name]; stays {
			continue
		}
		c := Change{Phase: p.Name, What: "removed", Words: []string{"no entry in spec.upgrade.phaseMap: an object here would be Stalled (UnknownPhase)"}}
		if to := mapped[p.Name]; to != "" {
			c.Words = []string{"an object here goes on in " + to}
		} else {
			r.Dangers = append(r.Dangers, fmt.Sprintf("phase %s is gone and spec.upgrade.phaseMap does not say what follows it: an object there would be Stalled (UnknownPhase)", p.Name))
		}
		r.Phases = append(r.Phases, c)
	}
}

// renamed tells what objects under way find under another name.
func renamed(what string, names map[string]string) []string {
	var words []string
	for _, old := range slices.Sorted(maps.Keys(names)) {
		words = append(words, fmt.Sprintf("%s %s is %s now", what, old, names[old]))
	}
	return words
}

// arrived tells of a phase that the old revision did not have: new, or another
// name for one that is gone.
func arrived(p v1alpha1.Phase, olds map[string]v1alpha1.Phase, mapped map[string]string) Change {
	for _, was := range slices.Sorted(maps.Keys(mapped)) {
		old, ok := olds[was]
		if ok && mapped[was] == p.Name {
			old.Name = p.Name
			return Change{Phase: p.Name, What: "renamed", Was: was, Words: changes(old, p)}
		}
	}
	return Change{Phase: p.Name, What: "added", Words: outline(p)}
}

// outline names the parts of a new phase.
func outline(p v1alpha1.Phase) []string {
	var words []string
	for _, part := range []struct{ title, list any }{{"steps", p.Steps}, {"leads to", p.Next}} {
		items, _ := plain(part.list).([]any)
		if _, order := named(items); len(order) > 0 {
			words = append(words, fmt.Sprintf("%s: %s", part.title, strings.Join(order, ", ")))
		}
	}
	return words
}

// Stranding tells whether anything would be left behind: of the live objects, if
// they were looked at, else of any that there could be.
func (r Report) Stranding() bool {
	if r.Impacts == nil {
		return len(r.Dangers) > 0
	}
	return slices.ContainsFunc(r.Impacts, func(f Impact) bool { return f.To == "" || len(f.Leaks) > 0 })
}

func label(d *program.Definition) string { return d.File + " (" + d.Revision + ")" }

func withoutPhases(s v1alpha1.MachineSpec) v1alpha1.MachineSpec {
	s.Phases = nil
	return s
}

func byName(phases []v1alpha1.Phase) map[string]v1alpha1.Phase {
	all := map[string]v1alpha1.Phase{}
	for _, p := range phases {
		all[p.Name] = p
	}
	return all
}

func adoption(d *program.Definition) v1alpha1.Upgrade {
	if d.Spec.Upgrade == nil {
		return v1alpha1.Upgrade{}
	}
	return *d.Spec.Upgrade
}

// changes tells what differs between two parts of a file, one line for each value,
// as the file names it. It goes through whatever the format has, so that a new
// field cannot be forgotten.
func changes(older, newer any) []string {
	var out []string
	differ(&out, "", plain(older), plain(newer))
	return out
}

// plain is a value as JSON has it.
func plain(v any) any {
	var out any
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return fmt.Sprint(v) // not reached: files are made of plain values
	}
	return out
}

func differ(out *[]string, path string, older, newer any) {
	switch o := older.(type) {
	case map[string]any:
		if n, ok := newer.(map[string]any); ok {
			differFields(out, path, o, n)
			return
		}
	case []any:
		if n, ok := newer.([]any); ok && (hasNames(o) || hasNames(n)) {
			differLists(out, path, o, n)
			return
		}
	}
	was, is := show(older), show(newer)
	switch {
	case was == is:
	case older == nil:
		*out = append(*out, fmt.Sprintf("%s added: %s", path, is))
	case newer == nil:
		*out = append(*out, fmt.Sprintf("%s removed: %s", path, was))
	default:
		*out = append(*out, fmt.Sprintf("%s: %s → %s", path, was, is))
	}
}

func differFields(out *[]string, path string, older, newer map[string]any) {
	all := maps.Clone(older)
	maps.Copy(all, newer)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		differ(out, strings.TrimPrefix(path+"."+key, "."), older[key], newer[key])
	}
}

// differLists compares lists by what their entries are called, then their order.
func differLists(out *[]string, path string, older, newer []any) {
	olds, oldNames := named(older)
	news, newNames := named(newer)
	for _, name := range newNames {
		differ(out, path+"["+name+"]", olds[name], news[name])
	}
	for _, name := range oldNames {
		if news[name] == nil {
			differ(out, path+"["+name+"]", olds[name], nil)
		}
	}
	both := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return olds[n] == nil || news[n] == nil })
	}
	if was, is := both(oldNames), both(newNames); !slices.Equal(was, is) {
		*out = append(*out, fmt.Sprintf("%s in another order: %s → %s", path, strings.Join(was, ", "), strings.Join(is, ", ")))
	}
}

// names are the fields that an entry of a list is known by, best first.
var names = []string{"name", "action", "undo", "wait", "is", "to", "else", "kind"}

func hasNames(list []any) bool {
	return len(list) > 0 && slices.IndexFunc(list, func(item any) bool { return nameOf(item) == "" }) < 0
}

func nameOf(item any) string {
	fields, _ := item.(map[string]any)
	for _, key := range names {
		if text, ok := fields[key].(string); ok {
			return text
		}
	}
	return ""
}

// named tells two entries of one name apart by a number.
func named(list []any) (byName map[string]any, order []string) {
	byName = map[string]any{}
	count := map[string]int{}
	for _, item := range list {
		name := cmp.Or(nameOf(item), "entry")
		if count[name]++; count[name] > 1 {
			name = fmt.Sprintf("%s #%d", name, count[name])
		}
		byName[name] = item
		order = append(order, name)
	}
	return byName, order
}

func show(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.NewReplacer(`\u003e`, ">", `\u003c`, "<", `\u0026`, "&").Replace(string(data))
}

// Text is the report for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s\nnew: %s\n", r.Old, r.New)
	if len(r.Machine)+len(r.Phases) == 0 {
		b.WriteString("\nnothing that matters changed\n")
	}
	list(&b, "\nthe machine\n", r.Machine)
	for _, c := range r.Phases {
		head := "\nphase " + c.Phase + ": " + c.What
		if c.Was != "" {
			head += " from " + c.Was
		}
		b.WriteString(head + "\n")
		list(&b, "", c.Words)
	}
	if r.Impacts == nil {
		list(&b, "\nDANGER\n", r.Dangers)
		return b.String()
	}
	fmt.Fprintf(&b, "\nobjects: %d\n", len(r.Impacts))
	for _, f := range r.Impacts {
		fmt.Fprintf(&b, "  %s in %q: %s\n", f.Object, f.Phase, f.Words)
	}
	return b.String()
}

func list(b *strings.Builder, head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	b.WriteString(head)
	for _, l := range lines {
		b.WriteString("  " + l + "\n")
	}
}
