package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rights"
)

// GrantRights is the remedy for a controller that may not do what its machine needs.
const GrantRights = "grant it with the manager's ClusterRole (Helm: rbac.create, and controllers.<name>.extraRules for what a machine of your own does)"

// Rights asks whether the client's account may do all that is needed; remedy says how
// it is granted.
func Rights(c client.Client, needs []rights.Need, remedy string) Check {
	return Check{ID: "rights", Title: "the account may do what the machines need", Run: func(ctx context.Context) ([]Finding, error) {
		missing, err := rights.Missing(ctx, c, needs)
		return denied(missing, remedy), err
	}}
}

// denied is one finding for each object or resource, whatever may not be done to it.
func denied(missing []rights.Need, remedy string) []Finding {
	var findings []Finding
	for len(missing) > 0 {
		first := missing[0]
		n := 1
		verbs, who := []string{first.Verb}, slices.Clone(first.For)
		for ; n < len(missing) && sameTarget(first, missing[n]); n++ {
			verbs, who = append(verbs, missing[n].Verb), append(who, missing[n].For...)
		}
		missing = missing[n:]
		slices.Sort(who)
		first.Verb = strings.Join(verbs, ", ")
		findings = append(findings, Finding{Failure,
			fmt.Sprintf("this account may not %s (needed by %s)", first, strings.Join(slices.Compact(who), ", ")), remedy})
	}
	return findings
}

func sameTarget(a, b rights.Need) bool {
	return a.Group == b.Group && a.Resource == b.Resource && a.Name == b.Name && a.Namespace == b.Namespace && a.URL == b.URL
}
