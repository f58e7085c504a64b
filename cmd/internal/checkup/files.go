package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

// Files are the machines and the kinds that a manager would run with.
type Files struct {
	Machines []*fsm.Machine
	Registry *resources.Registry
	// faults are about the directory or the registry of kinds.
	faults  []error
	refused []machinestore.Refusal
}

// Load reads a directory of machine files and a file of kinds; empty for those that
// are compiled in. Those are taken also in place of what cannot be used, which the
// check machine-files tells of then. The error is about this program itself.
func Load(phasesDir, kindsFile string) (Files, error) {
	var f Files
	var err error
	if f.Registry, err = lint.LoadRegistry(kindsFile); err != nil {
		f.faults = append(f.faults, err)
		f.Registry = resources.Default()
	}
	compiled, err := load("")
	if err != nil {
		return f, err
	}
	store, err := load(phasesDir)
	if err != nil {
		f.faults, store = append(f.faults, err), compiled
	}
	f.refused = store.Refusals()
	names := append(store.Names(), compiled.Names()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f.Machines = append(f.Machines, cmp.Or(store.Of(name).InForce(), compiled.Of(name).InForce()))
	}
	return f, nil
}

func load(dir string) (*machinestore.Store, error) {
	return machinestore.Load(machinestore.Options{Shipped: phases.Files, Dir: dir, Bindings: catalog.Bindings, Log: logr.Discard()})
}

// check is a failure where a machine of one of the controllers has a file that cannot be used.
func (f *Files) check(controllers []string) check.Check {
	return check.Check{ID: "machine-files", Title: "machine files and kinds can be used", Run: func(context.Context) ([]check.Finding, error) {
		var findings []check.Finding
		for _, err := range f.faults {
			findings = append(findings, check.Finding{Level: check.Failure, Message: err.Error(), Remedy: "correct the file; until then the other checks are about what is compiled in"})
		}
		for _, r := range f.refused {
			finding := check.Finding{Level: check.Warning, Message: r.Finding, Remedy: "correct the file; it is of a machine that another process runs"}
			if r.Machine == "" || slices.Contains(controllers, ControllerOf(r.Machine)) {
				finding.Level, finding.Remedy = check.Failure, "correct the file. A manager that runs goes on with the last good machine; one that starts takes the compiled-in one, which the other checks are about, if nothing is under way, and else drives nothing of that machine"
			}
			findings = append(findings, finding)
		}
		for _, m := range f.Machines {
			findings = append(findings, check.Finding{Level: check.Info, Message: "machine " + m.Name() + ", revision " + m.Revision()})
			for _, u := range catalog.Unclear(m) {
				findings = append(findings, check.Finding{Level: check.Info, Message: fmt.Sprintf("machine %s: an expression says the kind for %s, so it is not asked whether this account may %s it", m.Name(), u.By, strings.Join(u.Verbs, ", "))})
			}
		}
		return findings, nil
	}}
}
