package check

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
)

// GrantRights is the remedy for a controller that may not do what its machine needs.
const GrantRights = "grant it with the manager's ClusterRole (Helm: rbac.create, and controllers.<name>.extraRules for what a machine of your own does)"

// Rights asks whether the client's account may do all that is needed; remedy says how
// it is granted.
func Rights(c client.Client, needs []rbac.Need, remedy string) Check {
	return Check{ID: "rights", Title: "the account may do what the machines need", Run: func(ctx context.Context) ([]Finding, error) {
		missing, err := rbac.Missing(ctx, c, needs)
		return denied(missing, remedy), err
	}}
}

// denied is one finding for each object or resource, whatever may not be done to it.
func denied(missing []rbac.Need, remedy string) []Finding {
	var findings []Finding
	for _, n := range rbac.ByTarget(missing) {
		findings = append(findings, Finding{Failure, fmt.Sprintf("this account may not %s (needed by %s)", n, strings.Join(n.For, ", ")), remedy})
	}
	return findings
}
