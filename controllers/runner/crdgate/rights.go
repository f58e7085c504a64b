package crdgate

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/rbac"
)

// Rights are what a Gate needs: to see the CRD of its name and that of MachineState, or
// all of them where it knows the kind only and crdName is empty.
func Rights(crdName string) rbacv1.PolicyRule {
	var names []string
	if crdName != "" {
		names = []string{crdName, v1alpha1.MachineStateCRD}
	}
	return rbac.Rule("list watch", "apiextensions.k8s.io", "customresourcedefinitions", names...)
}
