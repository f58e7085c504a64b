package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/check"
)

// tigeraGroup is that of the objects by which the Tigera operator is told to run Calico.
const tigeraGroup = "operator.tigera.io"

func tigeraOperatorRights() []rbacv1.PolicyRule {
	return rule("get", appsv1.GroupName, "daemonsets", calicoNode)
}

// tigeraOperator finds what would keep the Tigera operator, where it runs Calico, from taking it to v3. It is to do
// that at Converged, from where there is no way back.
func (s *preflight) tigeraOperator(dm *migration) check.Check {
	return check.Check{ID: "tigera-operator", Title: "the Tigera operator, if it runs Calico, takes it to v3", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		node := &appsv1.DaemonSet{}
		if found, err := s.components.component(ctx, calicoNode, node); err != nil || !found || !byTigeraOperator(node) {
			return nil, err
		}
		served, err := s.discover(admissionregistrationv1.GroupName)
		if err != nil {
			return nil, err
		}
		all, err := s.migrations(ctx)
		if err != nil {
			return nil, err
		}
		return judgeTigeraOperator(len(served["mutatingadmissionpolicies"]) > 0, all, uidOf(dm)), nil
	}}
}

// byTigeraOperator tells that the operator controls an object, in the name of its Installation.
func byTigeraOperator(obj metav1.Object) bool {
	owner := metav1.GetControllerOf(obj)
	return owner != nil && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == tigeraGroup
}

// judgeTigeraOperator knows of the operator: with v3 it ends at its start where no MutatingAdmissionPolicy is served,
// in whatever version; and of all DatastoreMigrations it lists one, the first by name. By the phase of that one it
// leaves the APIService alone, and takes Calico to v3. asking is empty where no migration asks.
func judgeTigeraOperator(mutates bool, all []migration, asking types.UID) (findings []check.Finding) {
	if !mutates {
		findings = append(findings, check.Finding{Level: check.Failure,
			Message: "the Tigera operator runs Calico here, and the API server does not serve MutatingAdmissionPolicy: without it the operator refuses to run with v3, and the migration would stay in Converged",
			Remedy:  "let the API server serve it (docs/operate/supported-versions.md)"})
	}
	if len(all) < 2 {
		return findings
	}
	first := slices.MinFunc(all, func(a, b migration) int { return cmp.Compare(a.Name, b.Name) })
	if first.UID == asking {
		return findings
	}
	f := check.Finding{Level: check.Warning, // it is not known which one will begin
		Message: fmt.Sprintf("the Tigera operator runs Calico here, and looks at one DatastoreMigration only, the first by name: %s", first.Name),
		Remedy:  "delete it, or give the migration that is to begin a name that comes before"}
	if asking != "" {
		f.Level = check.Failure
		f.Message += "; it would put the APIService back while this one migrates, and not take Calico to v3"
	}
	return append(findings, f)
}
