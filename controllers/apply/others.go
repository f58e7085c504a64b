package apply

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An atomic list belongs to one field manager as a whole. Applied by force, it loses what another controller has added, which
// adds it again: on OpenShift, with a new Secret each time. Of all lists that this package applies, only imagePullSecrets of a
// ServiceAccount has another writer (docs/reference/lists.md), so only there are the entries of others kept.

// AnnotationPullSecrets notes which imagePullSecrets of a ServiceAccount are the manager's, as a JSON list of names: those that
// are not wanted any more go, all others stay. It is written together with them.
const AnnotationPullSecrets = "phasegate.dev/image-pull-secrets" //nolint:gosec // a name, no credentials

// keepOthers puts into want the entries of live's shared lists that are not the manager's, and notes which are. owned is what
// the manager has in live; both are nil for an object that is to be made. A list of another manager that has all that is wanted
// is left to it.
func keepOthers(live, owned, want client.Object) {
	account, is := want.(*corev1.ServiceAccount)
	if !is {
		return
	}
	there, mine := &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
	if live != nil {
		there, mine = live.(*corev1.ServiceAccount), owned.(*corev1.ServiceAccount)
	}
	var before []string
	if json.Unmarshal([]byte(mine.Annotations[AnnotationPullSecrets]), &before) != nil {
		before = nil // nothing is known to be ours
	}
	var brought []string
	for _, secret := range account.ImagePullSecrets {
		if slices.Contains(before, secret.Name) || !slices.Contains(there.ImagePullSecrets, secret) {
			brought = append(brought, secret.Name)
		}
	}
	if len(brought) > 0 {
		note, _ := json.Marshal(brought) // a list of texts
		account.SetAnnotations(merged(account.GetAnnotations(), AnnotationPullSecrets, string(note)))
	}
	account.ImagePullSecrets = mergeSecrets(there.ImagePullSecrets, before, account.ImagePullSecrets)
	if len(mine.ImagePullSecrets) == 0 && slices.Equal(account.ImagePullSecrets, there.ImagePullSecrets) {
		account.ImagePullSecrets = nil
	}
}

// mergeSecrets is what is there, without what was brought before and is not wanted, and with what is wanted.
func mergeSecrets(there []corev1.LocalObjectReference, before []string, want []corev1.LocalObjectReference) (all []corev1.LocalObjectReference) {
	for _, secret := range there {
		if slices.Contains(want, secret) || !slices.Contains(before, secret.Name) {
			all = append(all, secret)
		}
	}
	for _, secret := range want {
		if !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	return all
}
