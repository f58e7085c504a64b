package machinestore

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// refusal is a file that is not used.
type refusal struct {
	// file is its path, or that of the directory when it could not be listed.
	file string
	// machine is the one that goes on as it was; empty when the file does not even
	// tell whose it is.
	machine  string
	findings diag.Diagnostics
}

// note is the first finding, for people.
func (r *refusal) note() string {
	note := r.findings[0].String()
	if more := len(r.findings) - 1; more > 0 {
		note += fmt.Sprintf(" (and %d more)", more)
	}
	return note
}

// verdict is what a reading of the directory comes to.
type verdict struct {
	// inForce are the machines that run, by name.
	inForce map[string]*fsm.Machine
	// warnings are about machines that run all the same, by name.
	warnings map[string]diag.Diagnostics
	refused  []refusal
	// orphans are machines that run on though their file is gone.
	orphans []string
	// waiting are machines that nothing drives, because their file is refused and none of
	// the name was in force before; each with what keeps the compiled-in one from taking its
	// place, as far as that is known.
	waiting map[string]string
}

// bindings answers what the machine of a definition may name.
type bindings func(*fsm.Definition) (fsm.Bindings, error)

// judge is the whole policy. shipped are the compiled-in machines, before are
// those in force until now, files is the directory. Whatever is wrong with a file,
// the machine that it is about goes on as it was. Where there was none before, because the
// program starts, nothing drives its objects until fallBack has asked them.
func judge(shipped, before map[string]*fsm.Machine, files []file, bind bindings) verdict {
	j := &judgement{before: before, known: map[string]*fsm.Machine{}, found: map[string]*fsm.Machine{}, disputed: map[string]bool{},
		verdict: verdict{inForce: map[string]*fsm.Machine{}, warnings: map[string]diag.Diagnostics{}, waiting: map[string]string{}}}
	maps.Copy(j.known, shipped)
	maps.Copy(j.known, before)
	for _, f := range files {
		j.load(f, bind)
	}
	found := maps.Clone(j.found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		j.checkKind(found[name], found)
	}
	j.choose(shipped)
	return j.verdict
}

type judgement struct {
	verdict
	before map[string]*fsm.Machine
	// known are those, and the compiled-in machines of other names.
	known map[string]*fsm.Machine
	// found are the machines of the directory without an error.
	found map[string]*fsm.Machine
	// disputed are the names of refused machines; the empty name stands for files
	// that do not tell.
	disputed map[string]bool
}

func (j *judgement) refuse(f, machine string, findings ...diag.Diagnostic) {
	j.refused = append(j.refused, refusal{file: f, machine: machine, findings: findings})
	j.disputed[machine] = true
	delete(j.found, machine)
}

func (j *judgement) load(f file, bind bindings) {
	if f.fault != "" {
		j.refuse(f.name, j.whose(f), diag.Diagnostic{Code: "PG000", File: f.name, Pos: diag.Pos{Line: 1, Column: 1}, Severity: diag.SeverityError,
			Message: "it cannot be read: " + f.fault, Fix: "make it readable or remove it"})
		return
	}
	def, diags := fsm.Load(f.name, f.data)
	if def == nil {
		j.refuse(f.name, j.whose(f), diags...)
		return
	}
	name := def.Metadata.Name
	b, err := bind(def)
	if err != nil {
		j.refuse(f.name, name, def.Finding("metadata.name", "PG000", err.Error(), "repair the program"))
		return
	}
	machine, diags := fsm.Bind(def, b)
	if machine == nil {
		j.refuse(f.name, name, diags...)
		return
	}
	if other := j.found[name]; other != nil {
		j.refuse(f.name, name, def.Finding("metadata.name", "PG000", fmt.Sprintf("machine %q is also in %s", name, other.File()), "keep one of them here; a spare copy must not end in .yaml or .yml"))
		return
	}
	if !j.disputed[name] {
		j.found[name], j.warnings[name] = machine, diags
	}
}

// whose guesses whose a file is that cannot be decoded: as far as it tells, else that of the
// machine which came from a file of this name.
func (j *judgement) whose(f file) string {
	if name := diag.NameIn(f.data); name != "" {
		return name
	}
	for name, m := range j.known {
		if filepath.Base(m.File()) == filepath.Base(f.name) {
			return name
		}
	}
	return ""
}

// checkKind refuses a machine whose kind would leave objects without a machine,
// or with two: then none of the two that are new is used.
func (j *judgement) checkKind(m *fsm.Machine, found map[string]*fsm.Machine) {
	refuse := func(message, fix string) {
		j.refuse(m.File(), m.Name(), m.Definition().Finding("spec.for", "PG000", message, fix))
	}
	if last := j.known[m.Name()]; last != nil {
		if last.For() != m.For() {
			refuse(fmt.Sprintf("machine %q is for %s, not for %s", m.Name(), show(last.For()), show(m.For())),
				"give the machine of another kind another name")
		}
		return
	}
	for _, others := range []map[string]*fsm.Machine{j.known, found} {
		for _, name := range slices.Sorted(maps.Keys(others)) {
			if name != m.Name() && groupKind(others[name].For()) == groupKind(m.For()) {
				refuse(fmt.Sprintf("%s is the kind of machine %q already", show(m.For()), name),
					fmt.Sprintf("name this machine %s, or give it a kind of its own", name))
				return
			}
		}
	}
}

// choose picks the machine of each name that is or was known.
func (j *judgement) choose(shipped map[string]*fsm.Machine) {
	for name := range j.disputed {
		if j.known[name] == nil && name != "" {
			j.waiting[name] = ""
		}
	}
	all := maps.Clone(j.known)
	maps.Copy(all, j.found)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch now := j.found[name]; {
		case now != nil:
			j.inForce[name] = j.unchanged(now)
		case j.disputed[name] || j.disputed[""]: // a file that does not tell may be this one
			j.stay(name)
		case shipped[name] != nil:
			j.inForce[name] = shipped[name]
		default: // its objects may have finalizers that nobody else removes
			j.stay(name)
			j.orphans = append(j.orphans, name)
		}
	}
}

// unchanged is the machine of before where that is the same.
func (j *judgement) unchanged(now *fsm.Machine) *fsm.Machine {
	last := j.before[now.Name()]
	if last != nil && now.File() == last.File() && now.Definition().Same(last.Definition()) {
		return last
	}
	return now
}

// stay goes on with the machine of before; where there is none, nothing drives its objects.
func (j *judgement) stay(name string) {
	if last := j.before[name]; last != nil {
		j.inForce[name] = last
		return
	}
	j.waiting[name] = ""
}

func groupKind(k v1alpha1.ObjectKind) schema.GroupKind {
	return schema.FromAPIVersionAndKind(k.APIVersion, k.Kind).GroupKind()
}

func show(k v1alpha1.ObjectKind) string { return k.Kind + " " + k.APIVersion }
