package apply_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What another controller adds to the imagePullSecrets of a ServiceAccount stays, and is not fought about.
func TestPullSecretsOfOthersStay(t *testing.T) {
	w := newWorld(t)
	account := func(secrets ...string) *corev1.ServiceAccount {
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account", Namespace: w.namespace}}
		for _, name := range secrets {
			a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
		return a
	}
	openshift := func(change func(names []string) []string) func() {
		return func() {
			live := account()
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
				t.Fatal(err)
			}
			live.ImagePullSecrets = account(change(names(live))...).ImagePullSecrets
			if err := w.admin.Update(t.Context(), live, client.FieldOwner("openshift-controller-manager")); err != nil {
				t.Fatal(err)
			}
		}
	}
	add := func(name string) func() {
		return openshift(func(names []string) []string { return append(names, name) })
	}
	remove := func(name string) func() {
		return openshift(func(names []string) []string {
			return slices.DeleteFunc(names, func(n string) bool { return n == name })
		})
	}
	for _, step := range []struct {
		why  string
		do   func()
		want []string
		is   []string
		sent int
	}{
		{"nothing is there", nil, []string{"regcred"}, []string{"regcred"}, 1},
		{"another controller has added its own", add("dockercfg"), []string{"regcred"}, []string{"regcred", "dockercfg"}, 0},
		{"one is wanted that is not there", nil, []string{"regcred", "second"}, []string{"regcred", "dockercfg", "second"}, 1},
		{"one is not wanted any more", nil, []string{"second"}, []string{"dockercfg", "second"}, 1},
		{"the other controller replaces its own", openshift(func([]string) []string { return []string{"second", "dockercfg-2"} }), []string{"second"}, []string{"second", "dockercfg-2"}, 0},
		{"somebody removes ours", remove("second"), []string{"second"}, []string{"dockercfg-2", "second"}, 1},
		{"none is wanted any more", nil, nil, []string{"dockercfg-2"}, 1},
		{"the other controller adds one", add("dockercfg-3"), nil, []string{"dockercfg-2", "dockercfg-3"}, 0},
		{"one is wanted that another has brought", nil, []string{"dockercfg-3"}, []string{"dockercfg-2", "dockercfg-3"}, 0},
		{"and is not wanted any more", nil, nil, []string{"dockercfg-2", "dockercfg-3"}, 0},
	} {
		if step.do != nil {
			step.do()
		}
		before := w.writes
		mustPut(w, account(step.want...))
		if got := w.writes - before; got != step.sent {
			t.Errorf("%s: %d writes, want %d", step.why, got, step.sent)
		}
		before = w.writes
		now := mustPut(w, account(step.want...))
		if w.writes != before {
			t.Errorf("%s: a second call sent something", step.why)
		}
		if diff := cmp.Diff(step.is, names(now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
	}
}

func names(account *corev1.ServiceAccount) (names []string) {
	for _, secret := range account.ImagePullSecrets {
		names = append(names, secret.Name)
	}
	return names
}
