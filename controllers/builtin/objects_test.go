package builtin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/test/support/harness"
)

// What an action must not touch, and what it says then.
func TestObjectsOfOthers(t *testing.T) {
	theirs := func(ctx context.Context, c client.Client, p *plan) error {
		return c.Create(ctx, somebodys(p.Namespace, "theirs"))
	}
	labeled := func(ctx context.Context, c client.Client, p *plan) error {
		cm := somebodys(p.Namespace, "theirs")
		cm.Labels = map[string]string{builtin.LabelOwner: string(p.UID)}
		return c.Create(ctx, cm)
	}
	at := func(more params) params {
		return and(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs"}, more)
	}
	cases := map[string]struct {
		why    string
		before func(context.Context, client.Client, *plan) error
		action string
		with   params
		// want is the reason of the error, out the outputs, data what is stored
		// afterwards; "gone" when it is not there.
		want string
		out  map[string]any
		data string
	}{
		"apply": {
			why:    "an owner reference would let the garbage collector delete what somebody else made",
			before: theirs, action: "Apply", with: params{"manifest": configMap("theirs", "key", "ours")}, want: "NotOurs", data: "theirs",
		},
		"apply a copied label": {
			why:    "labels travel with manifests that people copy",
			before: labeled, action: "Apply", with: params{"manifest": configMap("theirs", "key", "ours")}, want: "NotOurs", data: "theirs",
		},
		"apply, allowed": {
			why:    "leave was given for the fields that the manifest has, and the other one manages another",
			before: theirs, action: "Apply", with: params{"notOurs": "allow", "manifest": configMap("theirs", "more", "ours")}, data: "theirs",
		},
		"delete": {
			why:    "as the release of an effect it must do nothing, or a refused acquire could never be rolled back",
			before: theirs, action: "Delete", with: at(nil), out: map[string]any{"gone": false}, data: "theirs",
		},
		"delete a copied label": {
			why:    "labels travel with manifests that people copy",
			before: labeled, action: "Delete", with: params{"apiVersion": "v1", "kind": "ConfigMap"}, out: map[string]any{"gone": true}, data: "theirs",
		},
		"delete, refused": {
			why:    "a step whose author wants to know",
			before: theirs, action: "Delete", with: at(params{"notOurs": "refuse"}), want: "NotOurs", data: "theirs",
		},
		"delete, allowed": {
			why:    "leave was given",
			before: theirs, action: "Delete", with: at(params{"notOurs": "allow", "wait": false}), out: map[string]any{"gone": true}, data: "gone",
		},
		"undo of what was not done": {
			why:    "a release may be called for what was never taken",
			before: theirs, action: "Patch", data: "theirs",
			with: at(params{"only": map[string]any{"data": map[string]any{"key": "ours"}}, "patch": map[string]any{"data": map[string]any{"key": "free"}}}),
		},
		"undo on what is gone": {
			why:    "the same: what it would restore is not there any more",
			action: "Patch", with: at(params{"missing": "ignore", "patch": map[string]any{"data": map[string]any{"key": "free"}}}), data: "gone",
		},
		"delete of another UID":            {why: "it came in its place", before: theirs, action: "Delete", with: at(params{"notOurs": "allow", "uid": "b1946ac9"}), out: map[string]any{"gone": true}, data: "theirs"},
		"delete what is gone":              {why: "a release that ran already", action: "Delete", with: at(nil), out: map[string]any{"gone": true}, data: "gone"},
		"delete of a kind that is gone":    {why: "its CRD may be uninstalled first, and our object must not wait for ever", action: "Delete", with: params{"apiVersion": "no.such/v1", "kind": "Thing", "name": "a"}, out: map[string]any{"gone": true}, data: "gone"},
		"apply the object itself":          {why: "it would own itself, and be deleted", action: "Apply", with: params{"manifest": content("builtin.phasegate.dev/v1", "Plan", "plan", nil)}, want: "OwnObject", data: "gone"},
		"delete the object itself":         {why: "it would wait for its own end", action: "Delete", with: params{"apiVersion": "builtin.phasegate.dev/v1", "kind": "Plan", "name": "plan", "notOurs": "allow"}, want: "OwnObject", data: "gone"},
		"a choice that there is not":       {why: "a typo must not mean the default", before: theirs, action: "Delete", with: at(params{"notOurs": "alow"}), want: "BadParameter", data: "theirs"},
		"a Job without a template":         {why: "there is nothing to run", action: "RunJob", with: params{"manifest": content("batch/v1", "Job", "a", map[string]any{"spec": "fast"})}, want: "InvalidManifest", data: "gone"},
		"await neither of two":             {why: "it would be done at once", action: "AwaitCondition", with: at(nil), want: "BadParameter", data: "gone"},
		"await the end of what is there":   {why: "gone means gone", before: theirs, action: "AwaitCondition", with: at(params{"gone": true}), want: "waits", data: "theirs"},
		"await the end of what is gone":    {why: "gone means gone", action: "AwaitCondition", with: at(params{"gone": true}), out: map[string]any{"reason": "", "message": ""}, data: "gone"},
		"await a condition of what is not": {why: "it may come", action: "AwaitCondition", with: at(params{"type": "Ready"}), want: "waits", data: "gone"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			if c.before != nil {
				if err := c.before(t.Context(), world, p); err != nil {
					t.Fatal(err)
				}
			}
			out, err := act(t, world, c.action, p, c.with)
			if diff := cmp.Diff(c.want, reasonOf(err)); diff != "" {
				t.Errorf("%s: outcome %v (-want +got):\n%s", c.why, err, diff)
			}
			if diff := cmp.Diff(c.out, out); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			data := "gone"
			if obj, err := stored(t, p.Namespace, "v1", "ConfigMap", "theirs"); err == nil {
				data = obj.Object["data"].(map[string]any)["key"].(string)
				if len(obj.GetOwnerReferences()) > 0 {
					t.Errorf("somebody else's object got the owner %v", obj.GetOwnerReferences())
				}
			}
			if data != c.data {
				t.Errorf("%s: afterwards it is %q, want %q", c.why, data, c.data)
			}
		})
	}
}

// Who made an object is on the object: an owner reference where the garbage
// collector honors one, else a label.
func TestApplyMarksWhatItMakes(t *testing.T) {
	world, p := plansFor(t)
	yes := true
	ref := []metav1.OwnerReference{{APIVersion: "builtin.phasegate.dev/v1", Kind: "Plan", Name: "plan", UID: p.UID, Controller: &yes}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
	if err := world.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	far := configMap("made", "key", "value")
	far["metadata"].(map[string]any)["namespace"] = other.Name
	cases := map[string]struct {
		manifest                          map[string]any
		namespace, apiVersion, kind, name string
		refs                              []metav1.OwnerReference
	}{
		"same namespace":    {configMap("made", "key", "value"), p.Namespace, "v1", "ConfigMap", "made", ref},
		"another namespace": {far, other.Name, "v1", "ConfigMap", "made", nil},
		"cluster-scoped":    {content("builtin.phasegate.dev/v1", "Site", p.Namespace, nil), "", "builtin.phasegate.dev/v1", "Site", p.Namespace, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := act(t, world, "Apply", p, params{"manifest": c.manifest}); err != nil {
				t.Fatal(err)
			}
			obj, err := stored(t, c.namespace, c.apiVersion, c.kind, c.name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.refs, obj.GetOwnerReferences()); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if got := obj.GetLabels()[builtin.LabelOwner]; got != string(p.UID) {
				t.Errorf("label %q, want the UID %s", got, p.UID)
			}
			if got := obj.GetManagedFields()[0].Manager; got != "phasegate/Plan/"+string(p.UID)+"/Working/Apply" {
				t.Errorf("field manager %q", got)
			}
			out, err := act(t, world, "Delete", p, params{"apiVersion": c.apiVersion, "kind": c.kind, "name": c.name, "namespace": c.namespace, "wait": false})
			if diff := cmp.Diff(map[string]any{"gone": true}, out); diff != "" || err != nil {
				t.Errorf("deleting what it made: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A manager without a right says which rule it needs.
func TestForbiddenNamesTheRule(t *testing.T) {
	_, p := plansFor(t)
	config := rest.CopyConfig(shared.Cluster(t).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	for _, obj := range []client.Object{ // what every pass needs
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "states"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"phasegate.dev"}, Resources: []string{"machinestates"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "states"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "states"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "nobody"}}},
	} {
		if err := shared.Cluster(t).Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	nobody, err := client.New(config, client.Options{Scheme: shared.Cluster(t).Client.Scheme(), Mapper: shared.Cluster(t).Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the right to read states", func() error {
		return client.IgnoreNotFound(nobody.Get(t.Context(), client.ObjectKey{Name: "none"}, &v1alpha1.MachineState{}))
	})
	cm := params{"apiVersion": "v1", "kind": "ConfigMap", "name": "any"}
	cases := map[string]struct {
		action string
		with   params
		rule   string
	}{
		"apply":      {"Apply", params{"manifest": configMap("any", "a", "b")}, `{apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}`},
		"delete":     {"Delete", cm, `{apiGroups: [""], resources: [configmaps], verbs: [get, list, delete]}`},
		"delete all": {"Delete", params{"apiVersion": "v1", "kind": "ConfigMap"}, `{apiGroups: [""], resources: [configmaps], verbs: [get, list, delete]}`},
		"claim":      {"Claim", cm, `{apiGroups: [""], resources: [configmaps], verbs: [get, patch]}`},
		"scale": {"Patch", params{"apiVersion": "apps/v1", "kind": "Deployment", "name": "any", "subresource": "scale", "patch": map[string]any{"spec": map[string]any{"replicas": 1.0}}},
			`{apiGroups: ["apps"], resources: [deployments], verbs: [get]} and {apiGroups: ["apps"], resources: [deployments/scale], verbs: [get, patch]}`},
		"evict":      {"Evict", params{"name": "any"}, `{apiGroups: [""], resources: [pods], verbs: [get]} and {apiGroups: [""], resources: [pods/eviction], verbs: [create]}`},
		"end of job": {"EndJob", nil, `{apiGroups: ["batch"], resources: [jobs], verbs: [list, delete, get]}`},
		"read":       {"ReadObject", cm, `{apiGroups: [""], resources: [configmaps], verbs: [get]}`},
		"job":        {"RunJob", params{"manifest": plainJob("a")}, `{apiGroups: ["batch"], resources: [jobs], verbs: [get, create]}`},
		"event":      {"EmitEvent", params{"reason": "A", "message": "b"}, `{apiGroups: ["events.k8s.io"], resources: [events], verbs: [create]}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := act(t, nobody, c.action, p, c.with)
			if err == nil || !strings.HasSuffix(err.Error(), "add to the manager's role: "+c.rule) {
				t.Errorf("got %v\nwant the rule %s", err, c.rule)
			}
		})
	}
}
