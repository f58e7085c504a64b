package check

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WantedCRD is a CRD that the manager works with.
type WantedCRD struct {
	// CRD is the one of the chart.
	CRD *apiextensionsv1.CustomResourceDefinition
	// Peer owns a CRD of the same name, which will do as well; empty where there is none.
	Peer string
	// Fields are what a peer's CRD must keep, as paths. Of a CRD without a peer, all fields
	// of the chart's are.
	Fields []string
}

// CRDs asks whether CRDs are there as this program needs them, and whose they are; remedy
// says how they are installed. Before the installation those that are missing are no
// finding. It needs to list each by its name.
func CRDs(c client.Client, wanted []WantedCRD, remedy string, installing bool) Check {
	title := "the CRDs are installed"
	if installing {
		title = "the CRDs that are installed can be used"
	}
	return Check{ID: "crds-installed", Title: title, Run: func(ctx context.Context) ([]Finding, error) {
		var findings []Finding
		for _, want := range wanted {
			list := &apiextensionsv1.CustomResourceDefinitionList{}
			name := want.CRD.Name
			if err := c.List(ctx, list, client.MatchingFields{"metadata.name": name}); err != nil {
				return nil, fmt.Errorf("read CRD %s: %w", name, err)
			}
			switch {
			case len(list.Items) > 0:
				findings = append(findings, want.judge(&list.Items[0], remedy)...)
			case installing:
				findings = append(findings, Finding{Info, "CRD " + name + " is not installed yet: the chart brings it", ""})
			default:
				findings = append(findings, Finding{Failure, "CRD " + name + " is not installed", remedy})
			}
		}
		return findings, nil
	}}
}

// judge says whose a CRD is, and what it lacks.
func (w WantedCRD) judge(live *apiextensionsv1.CustomResourceDefinition, remedy string) []Finding {
	about := "CRD " + live.Name
	if why := w.lacks(live); why != "" {
		return []Finding{{Failure, about + " " + why, remedy}}
	}
	if w.Peer == "" {
		return []Finding{{Info, about + " is ours", ""}}
	}
	if !ours(live) {
		return []Finding{{Info, about + " is not ours but " + w.Peer + "'s, and stays as it is: its objects show phase, message and conditions; the rest is in their MachineStates, which kubectl phasegate status reads", ""}}
	}
	if lost := pruned(status(live), status(w.CRD), "status"); lost != "" {
		return []Finding{{Warning, about + " is ours, of an older release: its objects do not show " + lost, remedy}}
	}
	return []Finding{{Info, about + " is ours: its objects show status.machine", ""}}
}

// lacks says why the manager cannot work with a CRD; empty if it can.
func (w WantedCRD) lacks(live *apiextensionsv1.CustomResourceDefinition) string {
	if live.Spec.Scope != w.CRD.Spec.Scope && live.DeletionTimestamp.IsZero() {
		return fmt.Sprintf("has scope %s instead of %s", live.Spec.Scope, w.CRD.Spec.Scope)
	}
	for i := range w.CRD.Spec.Versions {
		want := &w.CRD.Spec.Versions[i]
		at := slices.IndexFunc(live.Spec.Versions, func(l apiextensionsv1.CustomResourceDefinitionVersion) bool { return l.Name == want.Name && l.Served })
		if !want.Served {
			continue
		}
		if at < 0 {
			return "does not serve version " + want.Name
		}
		if why := w.lacksIn(&live.Spec.Versions[at], want); why != "" {
			return why + " in version " + want.Name
		}
	}
	return Unestablished(live)
}

// lacksIn looks into one version. A CRD of ours that is older may be too narrow: then the
// API server would refuse what the manager writes.
func (w WantedCRD) lacksIn(live, want *apiextensionsv1.CustomResourceDefinitionVersion) string {
	hasStatus := func(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Subresources != nil && v.Subresources.Status != nil
	}
	if hasStatus(live) != hasStatus(want) {
		return fmt.Sprintf("has status as a subresource: %t, and not %t,", hasStatus(live), hasStatus(want))
	}
	is, needed := schemaOf(live), schemaOf(want)
	if w.Peer == "" {
		if lost := pruned(is, needed, ""); lost != "" {
			return "does not keep " + lost
		}
	}
	for _, path := range w.Fields {
		if !Keeps(is, path) {
			return "does not keep " + path
		}
	}
	if w.Peer == "" || Keeps(is, "status.machine") {
		if field := narrower(is, needed, ""); field != "" {
			return "allows less in " + field + " than this release writes"
		}
	}
	return ""
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
