package checkup

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/controllers/machines"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

// Files are the machines and the kinds that a manager would run with.
type Files struct {
	Machines []*fsm.Machine
	Registry *resources.Registry
	findings []check.Finding
}

// Load reads a directory of machine files and a file of kinds; empty for those that
// are compiled in. Those are taken also in place of what cannot be used, which the
// check machine-files tells of then. The error is about this program itself.
func Load(phasesDir, kindsFile string) (Files, error) {
	var f Files
	var err error
	if f.Registry, err = lint.LoadRegistry(kindsFile); err != nil {
		f.refuse(err)
		f.Registry = resources.Default()
	}
	store, err := load(phasesDir)
	if err != nil {
		f.refuse(err)
		if store, err = load(""); err != nil {
			return f, err
		}
	}
	for _, name := range store.Names() {
		f.Machines = append(f.Machines, store.Of(name).InForce())
	}
	return f, nil
}

func load(dir string) (*machines.Store, error) {
	return machines.Load(machines.Options{Shipped: phases.Files, Dir: dir, Bindings: catalog.Bindings, Log: logr.Discard()})
}

func (f *Files) refuse(err error) {
	f.findings = append(f.findings, check.Finding{Level: check.Failure, Message: err.Error(), Remedy: "correct the file; until then the other checks are about what is compiled in"})
}

func (f *Files) check() check.Check {
	return check.Check{ID: "machine-files", Title: "machine files and kinds can be used", Run: func(context.Context) ([]check.Finding, error) {
		findings := f.findings
		for _, m := range f.Machines {
			findings = append(findings, check.Finding{Level: check.Info, Message: "machine " + m.Name() + ", revision " + m.Revision()})
			for _, u := range catalog.Unclear(m) {
				findings = append(findings, check.Finding{Level: check.Info, Message: fmt.Sprintf("machine %s: an expression says the kind for %s, so it is not asked whether this account may %s it", m.Name(), u.By, strings.Join(u.Verbs, ", "))})
			}
		}
		return findings, nil
	}}
}
