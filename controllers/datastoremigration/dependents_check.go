package datastoremigration

import (
	"context"
	"fmt"
	"strings"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rights"
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
		if len(all.unseen) > 0 {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("objects that depend on Calico's may be hidden in what cannot be listed: %s", clip(strings.Join(all.unseen, ", "), exampleLength)),
				Remedy:  "let this account list everything (Helm: controllers.datastoremigration.dependents.enabled=true), and mend API groups that do not answer"})
		}
		missing, err := rights.Missing(ctx, s.client, all.needs)
		for _, need := range missing {
			findings = append(findings, check.Finding{Level: check.Failure,
				Message: fmt.Sprintf("this account may not %s, and so not protect what depends on Calico's objects: %s",
					need, strings.Join(examples(need.For, func(name string) string { return name }), ", ")),
				Remedy: fmt.Sprintf("add {apiGroups: [%q], resources: [%s]} to the Helm value %s", need.Group, need.Resource, patchValue)})
		}
		return findings, err
	}}
}
