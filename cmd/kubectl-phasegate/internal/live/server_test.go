package live_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

var (
	gateKind = schema.GroupVersionKind{Group: "live.phasegate.dev", Version: "v1", Kind: "Gate"}
	noon     = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
)

const (
	namespace = "default"
	approve   = "live.phasegate.dev/approve"
	retry     = "live.phasegate.dev/retry"
)

// bench is an API server with gates, and the machine that would drive them.
type bench struct {
	t       *testing.T
	client  client.WithWatch
	machine *fsm.Machine
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	gates, err := crds.ReadDir("testdata/crds")
	if err != nil {
		t.Fatal(err)
	}
	states, err := crds.ReadDir("../../../../charts/phasegate/files/crds")
	if err != nil {
		t.Fatal(err)
	}
	states = slices.DeleteFunc(states, func(crd *unstructured.Unstructured) bool { return crd.GetName() != v1alpha1.MachineStateCRD })
	if err := crds.Install(t.Context(), c.Config, crds.Set{CRDs: append(gates, states...)}); err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, client: c.Client, machine: fsmtest.Machine(t, "testdata/gate.yaml", fsm.Bindings{})}
}

func named(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gateKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// gate makes an object in a phase.
func (b *bench) gate(name, phase string) *unstructured.Unstructured {
	b.t.Helper()
	u := named(name)
	if err := b.client.Create(b.t.Context(), u); err != nil {
		b.t.Fatal(err)
	}
	if phase != "" {
		b.status(name, `{"phase":"`+phase+`"}`)
	}
	return u
}

// status is a write of the manager.
func (b *bench) status(name, machine string) {
	b.t.Helper()
	b.merge(b.client.Status().Patch, name, `{"status":{"machine":`+machine+`}}`)
}

// state is another write of the manager: the truth about a gate.
func (b *bench) state(uid types.UID, name, machine string) {
	b.t.Helper()
	body := `{"apiVersion":"phasegate.dev/v1alpha1","kind":"MachineState","metadata":{"name":"` + v1alpha1.MachineStateName("gate", uid) + `","labels":{"phasegate.dev/machine":"gate"}},
		"spec":{"machine":"gate","object":{"apiVersion":"live.phasegate.dev/v1","kind":"Gate","namespace":"default","name":"` + name + `","uid":"` + string(uid) + `"}},"status":` + machine + `}`
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(body)); err != nil {
		b.t.Fatal(err)
	}
	if err := b.client.Create(b.t.Context(), u); err != nil {
		b.t.Fatal(err)
	}
}

// annotate is a write of a person.
func (b *bench) annotate(name, key, value string) {
	b.t.Helper()
	patch := func(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		return b.client.Patch(ctx, o, p)
	}
	b.merge(patch, name, `{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`)
}

func (b *bench) merge(send func(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error, name, body string) {
	b.t.Helper()
	if err := send(b.t.Context(), named(name), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) annotations(name string) map[string]string {
	b.t.Helper()
	u := named(name)
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		b.t.Fatal(err)
	}
	return u.GetAnnotations()
}

func (b *bench) ask(name, request string) live.Ask {
	return live.Ask{
		Client: b.client, Machine: b.machine, Object: types.NamespacedName{Namespace: namespace, Name: name},
		Request: request, Now: func() time.Time { return noon },
	}
}

func TestOnAPIServer(t *testing.T) {
	b := newBench(t)
	for name, test := range map[string]func(*testing.T, *bench){
		"Asks": testAsks, "AsksNothing": testAsksNothing, "AsksOnce": testAsksOnce, "Races": testRaces,
		"Waits": testWaits, "WaitsInVain": testWaitsInVain, "Lists": testLists, "States": testStates,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, &bench{t: t, client: b.client, machine: b.machine})
		})
	}
}

func testAsks(t *testing.T, b *bench) {
	b.gate("asks", "Closed")
	a := b.ask("asks", "approve")
	a.Params = map[string]string{"by": "me"}
	token, err := a.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(token, "2026-03-04T12:00:00Z-") {
		t.Errorf("token %q is not the time and a suffix", token)
	}
	want := map[string]string{approve: token, "live.phasegate.dev/by": "me"}
	if diff := cmp.Diff(want, b.annotations("asks")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	b.gate("retries", "Broken")
	token, err = b.ask("retries", "retry").Do(t.Context())
	if want := "2026-03-04T12:00:00Z"; err != nil || token != want || b.annotations("retries")[retry] != want {
		t.Errorf("where only a time is valid: token %q, error %v", token, err)
	}
}

func testAsksNothing(t *testing.T, b *bench) {
	b.gate("idle", "Open")
	b.gate("closed", "Closed")
	b.gate("untouched", "")
	params := func(a live.Ask) live.Ask { a.Params = map[string]string{"size": "3"}; return a }
	cases := map[string]struct {
		why    string
		ask    live.Ask
		notNow bool
		want   string
	}{
		"OtherPhase":   {why: "the request opens nothing there", ask: b.ask("idle", "approve"), notNow: true, want: `default/idle is in phase "Open", where request approve opens nothing (it does in: Closed)`},
		"NoPhase":      {why: "no manager has touched it yet", ask: b.ask("untouched", "approve"), notNow: true, want: `is in phase ""`},
		"Invalid":      {why: "no token of ours is valid", ask: b.ask("closed", "never"), notNow: true, want: "its `valid` in testdata/gate.yaml refuses both"},
		"Unknown":      {why: "a mistyped request", ask: b.ask("closed", "aprove"), want: `machine gate has no request "aprove": it has [approve, retry, never, bySpec]`},
		"NoAnnotation": {why: "the token is in the spec", ask: b.ask("idle", "bySpec"), want: "does not come from an annotation"},
		"Parameter":    {why: "a mistyped parameter", ask: params(b.ask("closed", "approve")), want: `no parameter "size"`},
		"Missing":      {why: "there is no such object", ask: b.ask("missing", "approve"), want: `get Gate missing`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := tc.ask.Do(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: %v, want %s", tc.why, err, tc.want)
			}
			if errors.Is(err, live.ErrNotNow) != tc.notNow {
				t.Errorf("%s: not now is %v", tc.why, !tc.notNow)
			}
		})
	}
	for _, name := range []string{"idle", "closed", "untouched"} {
		if got := b.annotations(name); len(got) > 0 {
			t.Errorf("%s was annotated: %v", name, got)
		}
	}
	forced := b.ask("idle", "approve")
	forced.Force = true
	if token, err := forced.Do(t.Context()); err != nil || b.annotations("idle")[approve] != token {
		t.Errorf("forced: token %q, error %v", token, err)
	}
}

func testAsksOnce(t *testing.T, b *bench) {
	b.gate("once", "Closed")
	a := b.ask("once", "approve")
	first, err := a.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.Do(t.Context()); err != nil || again != first {
		t.Errorf("the answer may have been lost: %q and then %q, error %v", first, again, err)
	}
	b.status("once", `{"phase":"Closed","requests":[{"name":"approve","token":"`+first+`"}]}`)
	if second, err := a.Do(t.Context()); err != nil || second == first {
		t.Errorf("the first was acted on, this is another: %q again, error %v", second, err)
	}
}

// testRaces lets the manager move the object between our read and our write.
func testRaces(t *testing.T, b *bench) {
	b.gate("races", "Closed")
	a := b.ask("races", "approve")
	tries := 0
	a.Client = interceptor.NewClient(b.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				b.status("races", `{"phase":"Open"}`)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	if _, err := a.Do(t.Context()); !errors.Is(err, live.ErrNotNow) || tries != 1 {
		t.Errorf("after %d tries: %v; the phase that was seen is gone", tries, err)
	}
	if got := b.annotations("races"); len(got) > 0 {
		t.Errorf("it was annotated all the same: %v", got)
	}
}

func testWaits(t *testing.T, b *bench) {
	b.gate("waits", "Closed")
	a := b.ask("waits", "approve")
	token, err := a.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	a.Client = interceptor.NewClient(b.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind() != gateKind {
				return c.Get(ctx, key, o, opts...)
			}
			if looks++; looks == 2 {
				return errors.New("the server is away")
			}
			if looks == 3 {
				b.status("waits", `{"phase":"Open","requests":[{"name":"approve","token":"`+token+`","earlier":"0123456789abcdef"}]}`) // not the first request
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o, err := a.Wait(ctx, token)
	if err != nil || o.Machine.Phase != "Open" || looks != 3 {
		t.Errorf("phase %q after %d looks, error %v", o.Machine.Phase, looks, err)
	}
}

func testWaitsInVain(t *testing.T, b *bench) {
	cases := map[string]struct {
		why    string
		before func(name string)
		want   string
	}{
		"Timeout": {why: "the manager does not come", want: "request approve was not acted on: default/timeout is in phase Closed, which waits for guards.night (day)",
			before: func(name string) {
				b.status(name, `{"phase":"Closed","blocked":[{"guard":"guards.night","value":"day"}]}`)
			}},
		"Other": {why: "another token overtook ours", want: `annotation live.phasegate.dev/approve is now "other", not "ours"`,
			before: func(name string) { b.annotate(name, approve, "other") }},
		"Gone": {why: "the object is gone", want: `"gone" not found`,
			before: func(name string) {
				if err := b.client.Delete(t.Context(), named(name)); err != nil {
					t.Fatal(err)
				}
			}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			name := strings.ToLower(name)
			b.gate(name, "Closed")
			b.annotate(name, approve, "ours")
			tc.before(name)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := b.ask(name, "approve").Wait(ctx, "ours"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.why, err, tc.want)
			}
		})
	}
}
