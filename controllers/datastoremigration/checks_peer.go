package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
)

const (
	// peerName is the only name that Calico's own controller acts on.
	peerName = "v1-to-v3"
	// peerAccount is the service account of Calico's own controller, in Calico's namespace.
	peerAccount = "calico-kube-controllers"
)

func peerRights() []rbacv1.PolicyRule {
	return rule("create", authorizationv1.GroupName, "subjectaccessreviews")
}

// peerController finds another program that acts on DatastoreMigrations: two that
// move the same objects would undo each other's work.
func (r *components) peerController(dm *migration) check.Check {
	return check.Check{ID: "peer-controller", Title: "Calico's own controller leaves the migration alone", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		all, err := r.migrations(ctx)
		if err != nil {
			return nil, err
		}
		var findings []check.Finding
		for i := range all {
			if all[i].UID != uidOf(dm) && isPeers(&all[i]) {
				findings = append(findings, check.Finding{Level: check.Failure,
					Message: fmt.Sprintf("DatastoreMigration %s is in the hands of another controller, in phase %s", all[i].Name, all[i].Status.Phase),
					Remedy:  "delete it and wait until it is gone, or let that controller finish"})
			}
		}
		acts, err := r.peerMayAct(ctx)
		if err != nil || !acts {
			return findings, err
		}
		name := ""
		if dm != nil {
			name = dm.Name
		}
		there := slices.ContainsFunc(all, func(dm migration) bool { return dm.Name == peerName && dm.Status.Phase != migrationv1.PhaseComplete })
		return append(findings, bothAct(name, there, r.peerUser())), nil
	}}
}

// bothAct judges a cluster on which Calico's own controller may act. name is that of the migration that asks, empty
// where there is none yet; there tells that there is one with the only name that the other acts on.
func bothAct(name string, there bool, user string) check.Finding {
	f := check.Finding{Level: check.Warning, // there is nothing that both would act on
		Message: fmt.Sprintf("Calico's own controller (%s) runs here, and acts on a DatastoreMigration with the name %s, as this program does, too", user, peerName),
		Remedy:  "give the migration another name, to-v3 say"}
	// What stands in a status is cut, and the waiver comes last.
	const keepAway = "; or keep that controller away: take its right to datastoremigrations/status; or this one: controllers.datastoremigration.enabled=false"
	switch {
	case name == peerName || name == "" && there:
		f.Level = check.Failure
		f.Remedy += keepAway
	case there:
		f.Level = check.Failure
		f.Message += fmt.Sprintf("; there is one beside %s", name)
		f.Remedy = "delete " + peerName + keepAway
	case name != "":
		f.Message += fmt.Sprintf("; it leaves %s alone", name)
		f.Remedy = "create none of that name"
	}
	return f
}

// isPeers: whatever our runner writes has the machine in it.
func isPeers(dm *migration) bool { return dm.Status.Phase != "" && dm.Status.Machine.Phase == "" }

func (r *components) peerUser() string {
	return "system:serviceaccount:" + r.namespace + ":" + peerAccount
}

// peerMayAct asks whether the account of Calico's controller may do what only that
// controller needs.
func (r *components) peerMayAct(ctx context.Context) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   r.peerUser(),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + r.namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "update", Group: migrationv1.GroupVersion.Group, Version: "*", Resource: "datastoremigrations", Subresource: "status", Name: peerName,
		},
	}}
	if err := r.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether %s may update datastoremigrations/status: %w", r.peerUser(), err)
	}
	return review.Status.Allowed, nil
}
