package builtin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/fsm"
)

// Page by page, each object is listed once, with what is asked of it and nothing else.
func TestListObjects(t *testing.T) {
	c, p := plansFor(t)
	for i := range 5 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("part-%d", i), Labels: map[string]string{"app": "web"}}, Data: map[string]string{"n": fmt.Sprint(i), "other": "x"}}
		if err := c.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	item := func(i int) any {
		return map[string]any{"name": fmt.Sprintf("part-%d", i), "namespace": p.Namespace, "data": map[string]any{"n": fmt.Sprint(i)}}
	}
	with := fsm.Params{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": map[string]any{"app": "web"}, "fields": []any{"data.n"}, "limit": int64(2)}
	for page, want := range [][]any{{item(0), item(1)}, {item(2), item(3)}, {item(4)}} {
		got, err := act(t, c, "ListObjects", p, with)
		if err != nil {
			t.Fatal(err)
		}
		with["continue"] = got["continue"]
		if page == 0 && got["remaining"] != int64(0) && got["remaining"] != int64(3) { // with a selector the server does not say
			t.Errorf("%v remain", got["remaining"])
		}
		if d := cmp.Diff(want, got["items"]); d != "" || got["count"] != int64(len(want)) || (got["continue"] == "") != (page == 2) || got["restarted"] != false {
			t.Errorf("page %d (-want +got):\n%s%v", page, d, got)
		}
	}
}

// forgetful is an API server that has compacted each place in a list. Its answer has a token for the same place, which is not one of a
// revision, unless that is empty; behind it there is nothing.
func forgetful(c client.WithWatch, token string) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		switch all := (&client.ListOptions{}).ApplyOptions(options); all.Continue {
		case "":
			return c.List(ctx, list, options...)
		case token:
			return nil
		}
		err := apierrs.NewResourceExpired("The provided continue parameter is too old")
		err.ErrStatus.Continue = token
		return err
	}})
}

func TestWhatListObjectsMeets(t *testing.T) {
	c, p := plansFor(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "s"}, StringData: map[string]string{"password": "hidden"}}
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "large"}, Data: map[string]string{"text": fmt.Sprintf("%0*d", 100<<10, 7)}}
	for _, obj := range []client.Object{secret, large} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	of := func(kind string, more fsm.Params) fsm.Params {
		with := fsm.Params{"apiVersion": "v1", "kind": kind}
		for name, value := range more {
			with[name] = value
		}
		return with
	}
	for name, tc := range map[string]struct {
		why       string
		client    client.Client
		with      fsm.Params
		count     int64
		reason    string
		restarted bool
	}{
		"begun anew":          {why: "the API server has compacted the place", client: forgetful(c, ""), with: of("Secret", fsm.Params{"continue": "old"}), count: 1, restarted: true},
		"gone on with":        {why: "a list of many must not begin anew for ever", client: forgetful(c, "same place"), with: of("Secret", fsm.Params{"continue": "old", "expired": "continue"}), count: 0},
		"not gone on with":    {why: "what was created before the place would not be listed", client: forgetful(c, "same place"), with: of("Secret", fsm.Params{"continue": "old"}), count: 1, restarted: true},
		"no token":            {why: "an older API server", client: forgetful(c, ""), with: of("Secret", fsm.Params{"continue": "old", "expired": "continue"}), count: 1, restarted: true},
		"by field":            {why: "the API server filters", client: c, with: of("ConfigMap", fsm.Params{"fieldSelector": "metadata.name=large"}), count: 1},
		"by expression":       {why: "as a Deployment selects its Pods", client: c, with: of("ConfigMap", fsm.Params{"labelSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": "Exists"}}}}), count: 0},
		"all namespaces":      {why: "kube-system has one", client: c, with: of("Namespace", fsm.Params{"namespace": "*", "fieldSelector": "metadata.name=kube-system"}), count: 1},
		"content of a Secret": {why: "everybody who reads the object would", client: c, with: of("Secret", fsm.Params{"fields": []any{"data"}}), reason: "SecretRefused"},
		"too large":           {why: "the state holds no more", client: c, with: of("ConfigMap", fsm.Params{"fields": []any{"data"}}), reason: "TooLarge"},
		"no selector":         {why: "it would list all", client: c, with: of("ConfigMap", fsm.Params{"labelSelector": "a in"}), reason: "BadParameter"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := act(t, tc.client, "ListObjects", p, tc.with)
			reason := ""
			if terminal, is := errors.AsType[*fsm.TerminalError](err); is {
				reason = terminal.Reason
			}
			if reason != tc.reason || reason == "" && (got["count"] != tc.count || got["restarted"] != tc.restarted) {
				t.Errorf("%s: %v, %v; want %q, %d, restarted %t", tc.why, got, err, tc.reason, tc.count, tc.restarted)
			}
		})
	}
}

// A patch of nothing is sent: only the server knows in which version an object is stored. Another one is sent once.
func TestPatchOfNothing(t *testing.T) {
	c, p := plansFor(t)
	d := newDeployment(t, c, p.Namespace, 1)
	for name, tc := range map[string]struct {
		why   string
		patch map[string]any
		sent  int
	}{
		"nothing":        {why: "each call asks the server", patch: map[string]any{}, sent: 2},
		"what is so now": {why: "nothing would change", patch: map[string]any{"spec": map[string]any{"replicas": int64(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			counted := interceptor.NewClient(c, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
				sent++
				return c.Patch(ctx, obj, patch, options...)
			}})
			for range 2 {
				if _, err := act(t, counted, "Patch", p, fsm.Params{"apiVersion": "apps/v1", "kind": "Deployment", "name": d.Name, "patch": tc.patch}); err != nil {
					t.Fatal(err)
				}
			}
			if sent != tc.sent {
				t.Errorf("%s: %d patches were sent, want %d", tc.why, sent, tc.sent)
			}
		})
	}
}

// One container gets its image by name; the others stay, and nothing is sent a second time.
func TestPatchOneContainer(t *testing.T) {
	c, p := plansFor(t)
	d := newDeployment(t, c, p.Namespace, 1)
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "second", Image: "second:1"})
	if err := c.Patch(t.Context(), d, client.MergeFrom(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace}})); err != nil {
		t.Fatal(err)
	}
	with := fsm.Params{"apiVersion": "apps/v1", "kind": "Deployment", "name": d.Name, "type": "strategic",
		"patch": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "second", "image": "second:2"}}}}}}}
	sent := 0
	counted := interceptor.NewClient(c, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
		sent++
		return c.Patch(ctx, obj, patch, options...)
	}})
	for range 2 {
		if _, err := act(t, counted, "Patch", p, with); err != nil {
			t.Fatal(err)
		}
	}
	got, err := act(t, c, "ReadObject", p, fsm.Params{"apiVersion": "apps/v1", "kind": "Deployment", "name": d.Name, "fields": []any{"spec.template.spec.containers[*].name", "spec.template.spec.containers[*].image"}})
	if err != nil {
		t.Fatal(err)
	}
	first := d.Spec.Template.Spec.Containers[0]
	want := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": first.Name, "image": first.Image}, map[string]any{"name": "second", "image": "second:2"},
	}}}}}
	if diff := cmp.Diff(want, got["object"]); diff != "" || sent != 1 {
		t.Errorf("%d patches were sent (-want +got):\n%s", sent, diff)
	}
	custom := fsm.Params{"apiVersion": planKind.GroupVersion().String(), "kind": "Plan", "name": p.Name, "type": "strategic", "patch": map[string]any{"spec": map[string]any{"size": int64(2)}}}
	if _, err := act(t, c, "Patch", p, custom); err == nil {
		t.Error("a kind of a CRD has no strategic merge patch, and nobody says so")
	}
}
