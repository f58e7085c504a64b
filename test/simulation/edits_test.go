package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// machineFile is a machine file that people edit while the machine runs.
type machineFile struct {
	bind func(*fsm.Definition) (*fsm.Machine, error)
	// inForce is the last one that was taken.
	inForce *fsm.Machine
	// taken are all that were in force, by their revision: a pass ends with the one that it began with.
	taken   map[string]*fsm.Machine
	content map[string]any
	// under are the phases that objects are in: what people edit most.
	under []string
	edits int
}

func newFile(text []byte, bind func(*fsm.Definition) (*fsm.Machine, error)) (*machineFile, error) {
	f := &machineFile{bind: bind, taken: map[string]*fsm.Machine{}}
	if err := yaml.Unmarshal(text, &f.content); err != nil {
		return nil, err
	}
	_, err := f.edit(nil, func(map[string]any) string { return "" })
	return f, err
}

// copy is the same file before any edit.
func (f *machineFile) copy() *machineFile {
	return &machineFile{bind: f.bind, inForce: f.inForce, content: f.content, edits: f.edits, taken: maps.Clone(f.taken)}
}

// edit changes the file, and notes in a comment how. The error is why the manager refuses
// it: the last good one goes on then, and the person takes the edit back.
func (f *machineFile) edit(objects []v1alpha1.MachineStatus, change func(spec map[string]any) (did string)) (did string, err error) {
	content := runtime.DeepCopyJSON(f.content)
	f.edits++
	f.under = nil
	for _, st := range objects {
		f.under = append(f.under, st.Phase)
	}
	did = change(content["spec"].(map[string]any))
	text, err := yaml.Marshal(content)
	if err != nil {
		return did, err
	}
	def, diags := fsm.Load("edited.yaml", append([]byte(fmt.Sprintf("# %d: %s\n", f.edits, did)), text...))
	if err := diags.Err(); err != nil {
		return did, err
	}
	m, err := f.bind(def)
	if err != nil {
		return did, err
	}
	for _, st := range objects {
		if err := m.Adopts(st); err != nil {
			return did, err
		}
	}
	f.content, f.inForce = content, m
	f.taken[m.Revision()] = m
	return did, nil
}

func list(of map[string]any, field string) []map[string]any {
	items, _ := of[field].([]any)
	all := make([]map[string]any, len(items))
	for i, item := range items {
		all[i], _ = item.(map[string]any)
	}
	return all
}

// pickFrom is one of several, by a number.
func pickFrom[T any](all []T, pick int) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[pick%len(all)], true
}

// An editing is one kind of edit of a machine file. It answers what it did.
type editing func(f *machineFile, spec map[string]any, pick int) (did string)

var editings = map[kind]editing{
	comments: func(_ *machineFile, _ map[string]any, _ int) string { return "a comment, and nothing else" },
	rewords: func(f *machineFile, spec map[string]any, pick int) string {
		p, _ := f.phase(list(spec, "phases"), pick)
		p["description"] = fmt.Sprintf("Described anew, edit %d.", f.edits)
		return fmt.Sprintf("description of %v", p["name"])
	},
	retimes:       retime,
	renamesPhase:  renamePhase,
	renamesStep:   renameStep,
	renamesEffect: renameEffect,
	addsPhase:     addPhase,
	removesPhase:  removePhase,
	addsStep:      addStep,
}

// phase is one of some: every other time one that an object is in.
func (f *machineFile) phase(of []map[string]any, pick int) (map[string]any, bool) {
	if i := slices.IndexFunc(of, func(p map[string]any) bool { return slices.Contains(f.under, p["name"].(string)) }); i >= 0 && pick%2 == 0 {
		return of[i], true
	}
	return pickFrom(of, pick/2)
}

// retime makes the times of a phase longer or shorter.
func retime(f *machineFile, spec map[string]any, pick int) string {
	p, _ := f.phase(list(spec, "phases"), pick)
	factor := []float64{0.02, 0.5, 2}[pick/7%3]
	var did []string
	scale := func(of map[string]any, field string, least time.Duration) {
		text, _ := of[field].(string)
		if d, err := time.ParseDuration(text); err == nil {
			of[field] = max(time.Duration(float64(d)*factor).Round(time.Millisecond), least).String()
			did = append(did, fmt.Sprintf("%s: %s → %s", field, text, of[field]))
		}
	}
	if timeout, ok := p["timeout"].(map[string]any); ok {
		scale(timeout, "after", time.Minute)
	}
	if retry, ok := p["retry"].(map[string]any); ok && factor != 0.02 {
		scale(retry, "base", 500*time.Millisecond)
	}
	if factor != 0.02 {
		scale(p, "poll", time.Second)
	}
	return fmt.Sprintf("times of %v: %s", p["name"], strings.Join(did, ", "))
}

// another is a new name that tells the old one.
func (f *machineFile) another(name string) string {
	base, _, _ := strings.Cut(name, "Edit")
	return fmt.Sprintf("%sEdit%d", base, f.edits)
}

// replace changes a name wherever it is written: as the value of one of some fields, and
// in quotes inside of expressions.
func replace(v any, fields []string, old, name string) any {
	switch x := v.(type) {
	case map[string]any:
		for key, value := range x {
			if text, ok := value.(string); ok && text == old && slices.Contains(fields, key) {
				x[key] = name
				continue
			}
			x[key] = replace(value, fields, old, name)
		}
	case []any:
		for i, value := range x {
			if value == old && slices.Contains(fields, "[]") {
				x[i] = name
				continue
			}
			x[i] = replace(value, fields, old, name)
		}
	case string:
		return strings.ReplaceAll(x, `"`+old+`"`, `"`+name+`"`)
	}
	return v
}

// successor notes where objects of the older file go on.
func successor(spec map[string]any, field, old, name string) {
	upgrade, _ := spec["upgrade"].(map[string]any)
	if upgrade == nil {
		upgrade = map[string]any{}
		spec["upgrade"] = upgrade
	}
	names, _ := upgrade[field].(map[string]any)
	if names == nil {
		names = map[string]any{}
		upgrade[field] = names
	}
	for key, value := range names {
		if value == old {
			names[key] = name
		}
	}
	delete(names, name)
	names[old] = name
}

func renamePhase(f *machineFile, spec map[string]any, pick int) string {
	p, _ := f.phase(list(spec, "phases"), pick)
	old := p["name"].(string)
	name := f.another(old)
	for _, q := range list(spec, "phases") {
		if q["name"] == old {
			q["name"] = name
			if q["showAs"] == nil {
				q["showAs"] = strings.Split(old, "Edit")[0]
			}
		}
		replace(q, []string{"to", "else"}, old, name)
	}
	replace(spec, []string{"initial", "to"}, old, name)
	successor(spec, "phaseMap", old, name)
	return fmt.Sprintf("phase %s → %s", old, name)
}

func renameStep(f *machineFile, spec map[string]any, pick int) string {
	var all []map[string]any
	for _, p := range list(spec, "phases") {
		all = append(all, list(p, "steps")...)
	}
	all = slices.DeleteFunc(all, func(s map[string]any) bool { return s["action"] == nil })
	s, ok := pickFrom(all, pick)
	if !ok {
		return ""
	}
	old, named := s["name"].(string)
	if !named {
		old = s["action"].(string)
	}
	s["name"] = f.another(old)
	successor(spec, "stepMap", old, s["name"].(string))
	return fmt.Sprintf("step %s → %s", old, s["name"])
}

func renameEffect(f *machineFile, spec map[string]any, pick int) string {
	e, ok := pickFrom(list(spec, "effects"), pick)
	if !ok {
		return ""
	}
	old := e["name"].(string)
	name := f.another(old)
	e["name"] = name
	for _, p := range list(spec, "phases") {
		if keeps, ok := p["keeps"]; ok {
			replace(keeps, []string{"[]"}, old, name)
		}
	}
	for _, r := range list(spec, "recover") {
		replace(r["holds"], []string{"[]"}, old, name)
	}
	replace(spec, nil, old, name)
	successor(spec, "effectMap", old, name)
	return fmt.Sprintf("effect %s → %s", old, name)
}

// addPhase puts a phase on an exit.
func addPhase(f *machineFile, spec map[string]any, pick int) string {
	all := slices.DeleteFunc(list(spec, "phases"), func(p map[string]any) bool { return p["next"] == nil || p["terminal"] != nil })
	p, ok := f.phase(all, pick)
	if !ok {
		return ""
	}
	exit, _ := pickFrom(list(p, "next"), pick/7)
	name := fmt.Sprintf("AddedEdit%d", f.edits)
	added := map[string]any{"name": name, "steps": []any{map[string]any{"wait": "2s"}}, "next": []any{map[string]any{"to": exit["to"], "reason": "PassedThrough"}},
		"timeout": map[string]any{"after": "1h", "stalled": "TooSlow"}}
	for _, same := range []string{"onDelete", "deletion"} {
		if p[same] != nil {
			added[same] = runtime.DeepCopyJSONValue(p[same])
		}
	}
	exit["to"] = name
	spec["phases"] = append(spec["phases"].([]any), added)
	return fmt.Sprintf("phase %s on the way from %v", name, p["name"])
}

// removePhase takes one away that was added.
func removePhase(_ *machineFile, spec map[string]any, pick int) string {
	added := slices.DeleteFunc(list(spec, "phases"), func(p map[string]any) bool { return !strings.HasPrefix(p["name"].(string), "AddedEdit") })
	p, ok := pickFrom(added, pick)
	if !ok {
		return ""
	}
	name, to := p["name"].(string), list(p, "next")[0]["to"].(string)
	spec["phases"] = slices.DeleteFunc(spec["phases"].([]any), func(q any) bool { return q.(map[string]any)["name"] == name })
	replace(spec, []string{"to"}, name, to)
	successor(spec, "phaseMap", name, to)
	return fmt.Sprintf("phase %s is taken away", name)
}

// addStep changes what a phase does, in a way that disturbs nothing.
func addStep(f *machineFile, spec map[string]any, pick int) string {
	p, ok := f.phase(slices.DeleteFunc(list(spec, "phases"), func(p map[string]any) bool { return p["steps"] == nil }), pick)
	if !ok {
		return ""
	}
	steps := p["steps"].([]any)
	at := pick / 7 % (len(steps) + 1)
	p["steps"] = slices.Insert(slices.Clone(steps), at, any(map[string]any{"wait": "1s"}))
	return fmt.Sprintf("a pause before step %d of %v", at, p["name"])
}
