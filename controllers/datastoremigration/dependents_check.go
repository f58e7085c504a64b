package datastoremigration

import (
	"context"
	"fmt"
	"strings"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
)

// dependentsCheck is the id of the check about objects outside Calico.
const dependentsCheck = "dependents"

// patchValue is where the chart lists what may be patched.
const patchValue = "controllers.datastoremigration.dependents.patch"

// dependents finds what would be in the garbage collector's reach during a migration,
// and what may hide it.
func (s *steps) dependents() check.Check {
	return check.Check{ID: "dependents", Waivable: true, Title: "objects outside Calico that Calico's own can be protected", Run: func(ctx context.Context) ([]check.Finding, error) {
		all, err := s.findDependents(ctx, s.copier(&migration{}))
		if err != nil {
			return nil, err
		}
		var findings []check.Finding
		if len(all.unlisted) > 0 {
			findings = append(findings, check.Finding{Level: check.Failure, // nobody but a person can tell whether something is lost
				Message: fmt.Sprintf("this account may not list *.* (needed by %s): what belongs to an object of Calico is not looked for in these, and the garbage collector may delete it during a migration: %s",
					DetachAction, clip(strings.Join(all.unlisted, ", "), exampleLength)),
				Remedy: "see whether there is anything (kubectl phasegate plan, as an administrator); if so, grant it (Helm: controllers.datastoremigration.dependents.enabled=true)"})
		}
		for _, group := range all.hidden {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("the API server cannot tell what is in %s, where something may depend on Calico's objects", group),
				Remedy:  "mend what serves it, or remove its APIService"})
		}
		missing, err := rbac.Missing(ctx, s.client, all.needs)
		for _, need := range missing {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("this account may not %s (needed by %s), and so not protect what depends on Calico's objects: %s",
					need, DetachAction, strings.Join(examples(need.For, func(name string) string { return name }), ", ")),
				Remedy: fmt.Sprintf("add {apiGroups: [%q], resources: [%s]} to the Helm value %s", need.Group, need.Resource, patchValue)})
		}
		return findings, err
	}}
}
