package builtin_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
)

var target = params{"apiVersion": "v1", "kind": "ConfigMap", "name": "target"}

// claimed makes the target of a plan with a claim.
func claimed(by func(*plan) string) func(context.Context, client.Client) (*plan, error) {
	return func(ctx context.Context, c client.Client) (*plan, error) {
		p, err := newPlan(ctx, c)
		if err != nil {
			return nil, err
		}
		cm := somebodys(p.Namespace, "target")
		if text := by(p); text != "" {
			cm.Annotations = map[string]string{builtin.AnnotationClaim: text}
		}
		return p, c.Create(ctx, cm)
	}
}

// claimOf is the claim of a Plan.
func claimOf(namespace, name string, uid types.UID) string {
	text, err := json.Marshal(v1alpha1.MachineStateSpec{Machine: runner.OnceMachine,
		Object: v1alpha1.ObjectReference{APIVersion: planKind.GroupVersion().String(), Kind: planKind.Kind, Namespace: namespace, Name: name, UID: uid}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func nobody(*plan) string { return "" }
func gonePlan(p *plan) string {
	return claimOf(p.Namespace, "other", "0f8e2b1c-0000-4000-8000-000000000001")
}

// stateOf makes the state of a plan, as one that is driven has it.
func stateOf(ctx context.Context, c client.Client, p *plan, uid types.UID, held ...v1alpha1.HeldEffect) error {
	state := &v1alpha1.MachineState{Spec: v1alpha1.MachineStateSpec{Machine: runner.OnceMachine,
		Object: v1alpha1.ObjectReference{APIVersion: planKind.GroupVersion().String(), Kind: planKind.Kind, Namespace: p.Namespace, Name: "other", UID: uid}}}
	state.Name = v1alpha1.MachineStateName(runner.OnceMachine, uid)
	state.Status.Held = held
	return c.Create(ctx, state)
}

// another is a second Plan beside the first.
func another(t *testing.T, c client.Client, p *plan) *plan {
	t.Helper()
	other := &plan{}
	other.Namespace, other.Name = p.Namespace, "other"
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestClaim(t *testing.T) {
	ours := func(p *plan) string { return claimOf(p.Namespace, p.Name, p.UID) }
	cases := map[string]struct {
		why    string
		by     func(*plan) string
		before func(*testing.T, client.Client, *plan)
		action string
		// want is the outcome; after who has the claim: "plan", "other" or a text.
		want, after string
	}{
		"free":       {why: "nobody uses it", by: nobody, action: "Claim", after: "plan"},
		"ours":       {why: "a repeat after a crash", by: ours, action: "Claim", after: "plan"},
		"a person's": {why: "only that person knows when it is over", by: func(*plan) string { return "Ann works on it" }, action: "Claim", want: `ConfigMap NS/target is claimed by "Ann works on it": remove its annotation phasegate.dev/claimed-by when that is over`, after: "Ann works on it"},
		"gone":       {why: "a holder that nothing is left of releases nothing any more", by: gonePlan, action: "Claim", after: "plan"},
		"gone, and its state holds it": {why: "what is held is released from the state", by: gonePlan, action: "Claim", after: "other", want: "ConfigMap NS/target is claimed by Plan NS/other",
			before: func(t *testing.T, c client.Client, p *plan) {
				if err := stateOf(t.Context(), c, p, "0f8e2b1c-0000-4000-8000-000000000001"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					state := &v1alpha1.MachineState{}
					state.Name = v1alpha1.MachineStateName(runner.OnceMachine, "0f8e2b1c-0000-4000-8000-000000000001")
					_ = c.Delete(context.Background(), state)
				})
			}},
		"another of its name": {why: "a new object of the name has another UID: the claim is not its own", by: gonePlan, action: "Claim", after: "plan",
			before: func(t *testing.T, c client.Client, p *plan) { another(t, c, p) }},
		"release":              {why: "it is released", by: ours, action: "Unclaim"},
		"release of nothing":   {why: "a release may be called for what was never taken", by: nobody, action: "Unclaim"},
		"release of another's": {why: "an object that only waited must not let the next one in", by: gonePlan, action: "Unclaim", after: "other"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			world := shared.Cluster(t).Client
			p, err := claimed(c.by)(t.Context(), world)
			if err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(t, world, p)
			}
			_, err = act(t, world, c.action, p, target)
			said := ""
			if err != nil {
				said = strings.ReplaceAll(err.Error(), p.Namespace, "NS")
			}
			if diff := cmp.Diff(c.want, said); diff != "" || err != nil && reasonOf(err) != "waits" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(c.after, holderOf(t, p.Namespace)); diff != "" {
				t.Errorf("%s: the holder (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// holderOf is the name of the Plan that has the target, or the text of the claim.
func holderOf(t *testing.T, namespace string) string {
	t.Helper()
	cm, err := stored(t, namespace, "v1", "ConfigMap", "target")
	if err != nil {
		t.Fatal(err)
	}
	holder, text := v1alpha1.MachineStateSpec{}, cm.GetAnnotations()[builtin.AnnotationClaim]
	if json.Unmarshal([]byte(text), &holder) == nil {
		return holder.Object.Name
	}
	return text
}

// A claim waits for what it is about, and its release does not.
func TestClaimOfNothing(t *testing.T) {
	world, p := plansFor(t)
	if _, err := act(t, world, "Claim", p, target); reasonOf(err) != "waits" || !strings.Contains(err.Error(), "is not there") {
		t.Errorf("got %v, want to wait", err)
	}
	for name, with := range map[string]params{"gone": target, "its kind is gone": {"apiVersion": "no.such/v1", "kind": "Thing", "name": "a"}} {
		if _, err := act(t, world, "Unclaim", p, with); err != nil {
			t.Errorf("release, %s: %v", name, err)
		}
	}
}

// between lets something happen after the first read of the target.
func between(c client.WithWatch, happens func()) client.WithWatch {
	var once sync.Once
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if key.Name == "target" {
				once.Do(happens)
			}
			return err
		},
	})
}

// Of two objects that look at the same moment, one gets the claim, and the other one waits for it.
func TestClaimOfTwo(t *testing.T) {
	world := shared.Cluster(t).Client
	p, err := claimed(nobody)(t.Context(), world)
	if err != nil {
		t.Fatal(err)
	}
	other := another(t, world, p)
	slow := between(world, func() {
		if _, err := act(t, world, "Claim", other, target); err != nil {
			t.Error(err)
		}
	})
	_, err = act(t, slow, "Claim", p, target)
	if want := "ConfigMap " + p.Namespace + "/target is claimed by Plan " + p.Namespace + "/other"; reasonOf(err) != "waits" || err.Error() != want {
		t.Errorf("got %v, want to wait: %s", err, want)
	}
	if holder := holderOf(t, p.Namespace); holder != "other" {
		t.Errorf("the holder is %q: the claim of the faster one was overwritten", holder)
	}
	if _, err := act(t, world, "Unclaim", other, target); err != nil {
		t.Error(err)
	}
	if _, err := act(t, world, "Claim", p, target); err != nil || holderOf(t, p.Namespace) != "plan" {
		t.Errorf("after the release: %v, held by %q", err, holderOf(t, p.Namespace))
	}
}

// Apply makes an object, or does nothing to one that somebody else made a moment earlier.
func TestApplyIsACreate(t *testing.T) {
	world, p := plansFor(t)
	slow := between(world, func() {
		if err := world.Create(t.Context(), somebodys(p.Namespace, "target")); err != nil {
			t.Error(err)
		}
	})
	with := params{"manifest": configMap("target", "more", "ours")}
	if _, err := act(t, slow, "Apply", p, with); err == nil {
		t.Error("the object that somebody else made a moment earlier was taken over")
	}
	cm := &corev1.ConfigMap{}
	if err := world.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "target"}, cm); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"key": "theirs"}, cm.Data); diff != "" || len(cm.OwnerReferences) > 0 {
		t.Errorf("owners %v, content (-want +got):\n%s", cm.OwnerReferences, diff)
	}
	if _, err := act(t, world, "Apply", p, with); reasonOf(err) != "NotOurs" {
		t.Errorf("the next look: got %v, want NotOurs", err)
	}
}
