package check

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// CRDs asks whether CRDs are there as this program needs them; remedy says how they
// are installed. It needs to list each by its name.
func CRDs(c client.Client, wanted []*apiextensionsv1.CustomResourceDefinition, remedy string) Check {
	return Check{ID: "crds-installed", Title: "the CRDs are installed", Run: func(ctx context.Context) ([]Finding, error) {
		var findings []Finding
		for _, want := range wanted {
			list := &apiextensionsv1.CustomResourceDefinitionList{}
			if err := c.List(ctx, list, client.MatchingFields{"metadata.name": want.Name}); err != nil {
				return nil, fmt.Errorf("read CRD %s: %w", want.Name, err)
			}
			why := "is not installed"
			if len(list.Items) > 0 {
				why = behind(&list.Items[0], want)
			}
			if why != "" {
				findings = append(findings, Finding{Failure, "CRD " + want.Name + " " + why, remedy})
			}
		}
		return findings, nil
	}}
}

// behind says what a CRD lacks; empty if nothing.
func behind(live, want *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range want.Spec.Versions {
		same := func(l apiextensionsv1.CustomResourceDefinitionVersion) bool { return l.Name == v.Name && l.Served }
		if v.Served && !slices.ContainsFunc(live.Spec.Versions, same) {
			return "does not serve version " + v.Name
		}
	}
	return Unestablished(live)
}

// Unestablished says why a CRD is not served; empty if it is.
func Unestablished(crd *apiextensionsv1.CustomResourceDefinition) string {
	if !crd.DeletionTimestamp.IsZero() {
		return "is being deleted: wait, then apply it again"
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return ""
		}
	}
	return "is not Established: see its conditions with kubectl describe crd"
}
