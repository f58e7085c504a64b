package live_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
)

// judged leaves out what is the object's own, as it was read.
var judged = cmpopts.IgnoreFields(live.Object{}, "Kind", "UID", "Content", "Saved")

func testLists(t *testing.T, b *bench) {
	b.gate("listed", "Open")
	stated := b.gate("stated", "")
	b.state(stated.GetUID(), "stated", `{"phase":"Closed","held":["key → Unlock {\"id\":7}"]}`)
	b.state("0-gone", "left", `{"phase":"Broken","held":["key"]}`)
	want := map[string]live.Object{
		"listed": {Namespace: namespace, Name: "listed", Machine: v1alpha1.MachineStatus{Phase: "Open"}, Note: lost},
		"stated": {Namespace: namespace, Name: "stated", Machine: v1alpha1.MachineStatus{Phase: "Closed", Held: []v1alpha1.HeldEffect{{Name: "key", Release: "Unlock", With: `{"id":7}`}}}},
		"left":   {Namespace: namespace, Name: "left", Gone: true, Machine: v1alpha1.MachineStatus{Phase: "Broken", Held: v1alpha1.Held("key")}},
	}
	gets := 0
	all, err := live.List(t.Context(), counted(b.client, &gets), b.machine, "")
	if err != nil || gets > 0 {
		t.Fatalf("error %v; %d states were read one by one", err, gets)
	}
	got := map[string]live.Object{}
	for _, o := range all {
		if _, ok := want[o.Name]; ok {
			got[o.Name] = o
		}
	}
	if diff := cmp.Diff(want, got, judged); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if elsewhere, err := live.List(t.Context(), b.client, b.machine, "kube-system"); err != nil || len(elsewhere) > 0 {
		t.Errorf("in another namespace: %v, error %v", elsewhere, err)
	}
}

const lost = "it has no MachineState: this is from the status of the object; a manager recovers the state, or stops with reason StateLost"

// counted counts the objects that are read one by one.
func counted(c client.WithWatch, gets *int) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			*gets++
			return c.Get(ctx, key, o, opts...)
		},
	})
}

func testStates(t *testing.T, b *bench) {
	u := b.gate("truth", "Open")
	key := types.NamespacedName{Namespace: namespace, Name: "truth"}
	get := func(t *testing.T, c client.Client, want live.Object) {
		t.Helper()
		want.Namespace, want.Name = namespace, "truth"
		got, err := live.Get(t.Context(), c, b.machine, key)
		if diff := cmp.Diff(want, got, judged); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	open := v1alpha1.MachineStatus{Phase: "Open"}
	get(t, b.client, live.Object{Machine: open, Note: lost})

	// The status says Open, which approve opens nothing in; the state knows better.
	b.state(u.GetUID(), "truth", `{"phase":"Closed"}`)
	gets := 0
	get(t, counted(b.client, &gets), live.Object{Machine: v1alpha1.MachineStatus{Phase: "Closed"}})
	if gets != 2 {
		t.Errorf("%d requests, want one for the object and one for the state", gets)
	}
	if _, err := b.ask("truth", "approve").Do(t.Context()); err != nil {
		t.Errorf("the view was believed: %v", err)
	}

	// Who may read gates only.
	b.annotate("truth", approve, "")
	refused := interceptor.NewClient(b.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "MachineState" {
				return apierrs.NewForbidden(schema.GroupResource{Group: "phasegate.dev", Resource: "machinestates"}, key.Name, nil)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	const note = "you may not read machinestates.phasegate.dev: this is from the status of the object, which may be old, forged or incomplete"
	get(t, refused, live.Object{Machine: open, Note: note})
	a := b.ask("truth", "approve")
	a.Client = refused
	if _, err := a.Do(t.Context()); !errors.Is(err, live.ErrNotNow) || !strings.Contains(err.Error(), note) {
		t.Errorf("the refusal does not say that it goes by the view: %v", err)
	}
}
