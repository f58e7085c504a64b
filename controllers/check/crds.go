package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
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
		if w.Peer != "" && !ours(live) {
			remedy = fmt.Sprintf("apply ours over %s's, which keeps the objects and serves what theirs does: kubectl apply --server-side --force-conflicts -f charts/phasegate/files/crds/%s_%s.yaml, or helm upgrade with crds.install=always and --take-ownership; or install a newer %s",
				w.Peer, w.CRD.Spec.Group, w.CRD.Spec.Names.Plural, w.Peer)
		}
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
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return ""
	}
	return "is not Established: see its conditions with kubectl describe crd"
}

type schema = apiextensionsv1.JSONSchemaProps

// schemaOf is empty where a version has none.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *schema {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return &schema{}
	}
	return v.Schema.OpenAPIV3Schema
}

// ours tells whether a CRD is of the chart, of any release: a peer's has no status.machine.
func ours(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		_, has := schemaOf(&v).Properties["status"].Properties["machine"]
		return has
	})
}

// status is the schema of the status in the version that is stored.
func status(crd *apiextensionsv1.CustomResourceDefinition) *schema {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			field := schemaOf(&crd.Spec.Versions[i]).Properties["status"]
			return &field
		}
	}
	return &schema{}
}

// keepsAll tells whether fields that a schema does not name are stored.
func keepsAll(s *schema) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || s.AdditionalProperties != nil
}

// Keeps tells whether a field is stored, by its path.
func Keeps(s *schema, path string) bool {
	for _, name := range strings.Split(path, ".") {
		field, named := s.Properties[name]
		if !named {
			return keepsAll(s)
		}
		s = &field
	}
	return true
}

// walk compares two schemas field by field, and answers the first path that says no. found
// is nil for a field that the first one does not have.
func walk(is, want *schema, path string, fits func(is, want *schema) bool) string {
	if !fits(is, want) {
		return path
	}
	if is == nil {
		return ""
	}
	if is.Items != nil && want.Items != nil && is.Items.Schema != nil && want.Items.Schema != nil {
		if no := walk(is.Items.Schema, want.Items.Schema, path+"[]", fits); no != "" {
			return no
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		field, wanted := is.Properties[name], want.Properties[name]
		next := &field
		if _, has := is.Properties[name]; !has {
			if keepsAll(is) {
				continue
			}
			next = nil
		}
		if no := walk(next, &wanted, strings.TrimPrefix(path+"."+name, "."), fits); no != "" {
			return no
		}
	}
	return ""
}

// pruned is the first field that one schema has and another would prune; empty if none.
func pruned(is, want *schema, path string) string {
	return walk(is, want, path, func(is, _ *schema) bool { return is != nil })
}

// narrower is the first field in which a schema allows less than another; empty if none.
func narrower(is, want *schema, path string) string {
	less := func(is, want *int64) bool { return is != nil && (want == nil || *is < *want) }
	return walk(is, want, path, func(is, want *schema) bool {
		return is == nil || is.Type == want.Type && !less(is.MaxLength, want.MaxLength) && !less(is.MaxItems, want.MaxItems) && !less(is.MaxProperties, want.MaxProperties)
	})
}
