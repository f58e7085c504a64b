package check

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
)

// OldestKubernetes is the oldest release that is supported: the first that serves
// ValidatingAdmissionPolicy to everybody. The chart's kubeVersion says the same.
const OldestKubernetes = "1.30.0"

// KubernetesVersion asks how old the API server is.
func KubernetesVersion(api discovery.ServerVersionInterface) Check {
	return Check{ID: "kubernetes-version", Title: "Kubernetes is " + OldestKubernetes + " or newer", Run: func(context.Context) ([]Finding, error) {
		info, err := api.ServerVersion()
		if err != nil {
			return nil, fmt.Errorf("ask the API server for its version: %w", err)
		}
		return judgeVersion(info.GitVersion), nil
	}}
}

func judgeVersion(text string) []Finding {
	served, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		return []Finding{{Failure, fmt.Sprintf("the API server says that its version is %q", text), "see what is between you and it"}}
	case served.LessThan(version.MustParseGeneric(OldestKubernetes)):
		return []Finding{{Failure, "the API server is Kubernetes " + text, "upgrade it to " + OldestKubernetes + " or newer first"}}
	}
	return []Finding{{Info, "the API server is Kubernetes " + text, ""}}
}

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
func denied(missing []rbac.Need, remedy string) (findings []Finding) {
	for _, n := range rbac.ByTarget(missing) {
		findings = append(findings, Finding{Failure, fmt.Sprintf("this account may not %s (needed by %s)", n, strings.Join(n.For, ", ")), remedy})
	}
	return findings
}
