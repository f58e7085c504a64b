package check

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
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
