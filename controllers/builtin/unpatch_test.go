package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/fsm"
)

// shop is an object that a Patch with restore: true stops, and Unpatch starts again.
type shop struct {
	t      *testing.T
	c      client.WithWatch
	warned []string
	writes int
	// dies tells of the write of that number that the manager does not live to see the answer of; before it is sent, or after.
	dies   int
	before bool
}

var errDied = errors.New("the manager died")

func newShop(t *testing.T) *shop {
	s := &shop{t: t}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	s.c = interceptor.NewClient(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRESTMapper(mapper).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			s.writes++
			if s.dies == s.writes && s.before {
				return errDied
			}
			err := c.Patch(ctx, obj, p, o...)
			if s.dies == s.writes && err == nil {
				return errDied
			}
			return err
		}})
	s.create("first")
	return s
}

func (s *shop) create(uid types.UID) {
	obj := shopObject()
	obj.SetUID(uid)
	obj.Object["spec"] = map[string]any{"replicas": int64(3), "paused": false, "template": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "v1", "pull": "Always"}}}}
	if err := s.c.Create(s.t.Context(), obj); err != nil {
		s.t.Fatal(err)
	}
}

func shopObject() *unstructured.Unstructured {
	return object("example.com/v1", "Shop", "bookshop", "bookshop")
}

// edit is what somebody else does.
func (s *shop) edit(patch string) {
	s.t.Helper()
	was, dies := s.writes, s.dies
	s.dies = -1
	if err := s.c.Patch(s.t.Context(), shopObject(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
	s.writes, s.dies = was, dies
}

func (s *shop) replace() {
	s.t.Helper()
	if err := s.c.Delete(s.t.Context(), shopObject()); err != nil {
		s.t.Fatal(err)
	}
	s.create("second")
}

// call calls an action for an owner, again and again if it fails as a conflict or crash does.
func (s *shop) call(owner types.UID, do func(context.Context, *call) (outputs, error), patch map[string]any) error {
	s.t.Helper()
	var err error
	for range 3 {
		plan := &unstructured.Unstructured{}
		plan.SetUID(owner)
		plan.SetNamespace("bookshop")
		c := &call{Options: Options{Client: s.c}, owner: plan, kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Plan"},
			with: fsm.Params{"apiVersion": "example.com/v1", "kind": "Shop", "namespace": "bookshop", "name": "bookshop", "patch": patch, "restore": true},
			warn: func(reason, format string, args ...any) {
				s.warned = append(s.warned, reason+": "+fmt.Sprintf(format, args...))
			}}
		if _, err = do(s.t.Context(), c); !errors.Is(err, errDied) {
			return err
		}
	}
	return err
}

func (s *shop) stop() {
	s.t.Helper()
	s.mustCall(patchObject, stopped())
}

func (s *shop) start() {
	s.t.Helper()
	s.mustCall(unpatch, stopped())
}

func (s *shop) mustCall(do func(context.Context, *call) (outputs, error), patch map[string]any) {
	s.t.Helper()
	if err := s.call("owner", do, patch); err != nil {
		s.t.Errorf("%v", err)
	}
}

func stopped() map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{"stopped": "true"}}, "spec": map[string]any{"replicas": int64(0), "paused": nil}}
}

// now is what the object says, with the fields of records by their keys alone.
func (s *shop) now() string {
	s.t.Helper()
	obj := shopObject()
	if err := s.c.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err.Error()
	}
	var owners []string
	for key := range obj.GetAnnotations() {
		owners = append(owners, strings.TrimPrefix(key, AnnotationRestore))
	}
	slices.Sort(owners)
	spec, _ := obj.Object["spec"].(map[string]any)
	image, _, _ := fieldAt(map[string]any{"c": spec["template"]}, []string{"c", "containers"})
	return fmt.Sprint(spec["replicas"], " paused ", spec["paused"], " labels ", obj.GetLabels(), " ", image, " on record ", owners)
}

const (
	containersAsMade = "[map[image:v1 name:app pull:Always]]"
	asFound          = "3 paused false labels map[] " + containersAsMade + " on record []"
)

func TestRestore(t *testing.T) {
	for name, c := range map[string]struct {
		why    string
		do     func(s *shop)
		want   string
		warned []string
	}{
		"acquired":       {"the values, and a record of what was there", func(s *shop) { s.stop() }, "0 paused <nil> labels map[stopped:true] " + containersAsMade + " on record [owner]", nil},
		"released":       {"what was there is back, what was removed too, and what was not there is gone", func(s *shop) { s.stop(); s.start() }, asFound, nil},
		"acquired twice": {"our own values are not what was found", func(s *shop) { s.stop(); s.stop(); s.start() }, asFound, nil},
		"released twice": {"nothing is on record any more", func(s *shop) { s.stop(); s.start(); s.edit(`{"spec":{"replicas":0}}`); s.start() },
			"0 paused false labels map[] " + containersAsMade + " on record []", nil},
		"never acquired": {"a crash may come before the write: it is on record in the ledger alone", func(s *shop) { s.edit(`{"spec":{"replicas":0}}`); s.start() },
			"0 paused false labels map[] " + containersAsMade + " on record []", nil},
		"one field changed meanwhile": {"it is left as it is, and said; the others are put back", func(s *shop) { s.stop(); s.edit(`{"spec":{"replicas":7}}`); s.start() },
			"7 paused false labels map[] " + containersAsMade + " on record []", []string{"NotRestored: Shop bookshop/bookshop: spec.replicas changed since it was set, and is left as it is"}},
		"put back by hand": {"there is nothing to say", func(s *shop) { s.stop(); s.edit(`{"spec":{"replicas":3}}`); s.start() }, asFound, nil},
		"changed, and acquired again": {"the newest value of others is what was found", func(s *shop) { s.stop(); s.edit(`{"spec":{"replicas":7}}`); s.stop(); s.start() },
			"7 paused false labels map[] " + containersAsMade + " on record []", nil},
		"another object of the name": {"it was never stopped", func(s *shop) { s.stop(); s.replace(); s.edit(`{"spec":{"replicas":0}}`); s.start() },
			"0 paused false labels map[] " + containersAsMade + " on record []", nil},
		"a copy of the object": {"what it says of the record is another object's", func(s *shop) {
			s.stop()
			obj := shopObject()
			if err := s.c.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				s.t.Fatal(err)
			}
			if err := s.c.Delete(s.t.Context(), shopObject()); err != nil {
				s.t.Fatal(err)
			}
			obj.SetResourceVersion("")
			obj.SetUID("copy")
			if err := s.c.Create(s.t.Context(), obj); err != nil {
				s.t.Fatal(err)
			}
			s.start()
		}, "0 paused <nil> labels map[stopped:true] " + containersAsMade + " on record [owner]", nil},
		"gone": {"there is nothing to put back", func(s *shop) {
			s.stop()
			if err := s.c.Delete(s.t.Context(), shopObject()); err != nil {
				s.t.Fatal(err)
			}
			s.start()
		}, `shops.example.com "bookshop" not found`, nil},
		"two owners": {"each has its record", func(s *shop) {
			s.stop()
			if err := s.call("other", patchObject, map[string]any{"spec": map[string]any{"paused": true}}); err != nil {
				s.t.Error(err)
			}
			s.start()
			if err := s.call("other", unpatch, map[string]any{"spec": map[string]any{"paused": true}}); err != nil {
				s.t.Error(err)
			}
		}, "3 paused <nil> labels map[] " + containersAsMade + " on record []", []string{"NotRestored: Shop bookshop/bookshop: spec.paused changed since it was set, and is left as it is"}},
		"two effects of one owner": {"each puts its own fields back", func(s *shop) {
			s.stop()
			s.mustCall(patchObject, map[string]any{"metadata": map[string]any{"labels": map[string]any{"more": "x"}}})
			s.mustCall(unpatch, map[string]any{"metadata": map[string]any{"labels": map[string]any{"more": "x"}}})
		}, "0 paused <nil> labels map[stopped:true] " + containersAsMade + " on record [owner]", nil},
		"a list": {"it is one value", func(s *shop) {
			patch := map[string]any{"spec": map[string]any{"template": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "v2"}}}}}
			s.mustCall(patchObject, patch)
			s.mustCall(patchObject, patch)
			s.mustCall(unpatch, patch)
		}, asFound, nil},
		"objects around it": {"what was made for a field goes with it", func(s *shop) {
			patch := map[string]any{"spec": map[string]any{"strategy": map[string]any{"rolling": map[string]any{"surge": int64(1), "max": int64(2)}}}}
			s.mustCall(patchObject, patch)
			s.mustCall(unpatch, patch)
			obj := shopObject()
			_ = s.c.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj)
			if left, _, _ := fieldAt(obj.Object, []string{"spec", "strategy"}); left != nil {
				s.t.Errorf("left is %v", left)
			}
		}, asFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			c.do(s)
			if d := cmp.Diff(c.want, s.now()); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if d := cmp.Diff(c.warned, s.warned); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// A crash before or after any write, or a lost answer, changes nothing of the end: also where somebody changes a field right then.
func TestRestoreAfterACrash(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d, before %t", n, before), func(t *testing.T) {
				s := newShop(t)
				s.dies, s.before = n, before
				s.stop()
				s.start()
				if d := cmp.Diff(asFound, s.now()); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if s.writes < 2 || s.warned != nil {
					t.Errorf("%d writes, warned of %v", s.writes, s.warned)
				}
			})
		}
	}
	t.Run("changed after the crash, before the write", func(t *testing.T) {
		s := newShop(t)
		s.dies, s.before = 1, true
		c := s.c
		s.c = interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if s.writes == 1 && s.dies == 1 {
				s.dies = 0
				s.edit(`{"spec":{"replicas":5}}`)
			}
			return c.Get(ctx, key, obj, o...)
		}})
		s.stop()
		s.start()
		want := strings.Replace(asFound, "3", "5", 1)
		if d := cmp.Diff(want, s.now()); d != "" {
			t.Errorf("what is there at the write counts (-want +got):\n%s", d)
		}
	})
}

// The API server stores values with defaults, and quantities in its own form: that is no change of somebody else.
func TestRestoreOfWhatTheServerChanges(t *testing.T) {
	s := newShop(t)
	c := s.c
	s.c = interceptor.NewClient(c, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
		if err := c.Patch(ctx, obj, p, o...); err != nil {
			return err
		}
		u := obj.(*unstructured.Unstructured)
		list, _, _ := fieldAt(u.Object, []string{"spec", "template", "containers"})
		if first := list.([]any)[0].(map[string]any); first["pull"] == nil {
			first["pull"], first["cpu"] = "IfNotPresent", "1"
			return c.Update(ctx, u)
		}
		return nil
	}})
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "v2", "cpu": "1000m"}}}}}
	s.mustCall(patchObject, patch)
	s.mustCall(patchObject, patch) // as it has the defaults now
	s.mustCall(unpatch, patch)
	if d := cmp.Diff(asFound, s.now()); d != "" || s.warned != nil {
		t.Errorf("warned of %v (-want +got):\n%s", s.warned, d)
	}
}

func TestRestoreIsRefused(t *testing.T) {
	patch := func(more fsm.Params) fsm.Params {
		with := fsm.Params{"apiVersion": "example.com/v1", "kind": "Shop", "name": "bookshop", "restore": true, "patch": stopped()}
		for name, v := range more {
			with[name] = v
		}
		return with
	}
	for name, c := range map[string]struct {
		why  string
		with fsm.Params
		want string
	}{
		"as it is meant": {"", patch(nil), ""},
		"a Secret":       {"its values would stand in an annotation", patch(fsm.Params{"apiVersion": "v1", "kind": "Secret"}), "would be readable"},
		"a subresource":  {"a record does not go with its write", patch(fsm.Params{"subresource": "scale"}), "of the object itself"},
		"strategic":      {"which fields it sets depends on the list that is there", patch(fsm.Params{"type": "strategic"}), "of the object itself"},
	} {
		_, err := patchFlaw(c.with)
		if got := fmt.Sprint(err); c.want != "" && !strings.Contains(got, c.want) || c.want == "" && err != nil {
			t.Errorf("%s: %s: got %v", name, c.why, err)
		}
	}
	s := newShop(t)
	s.edit(`{"metadata":{"labels":{"stopped":"` + strings.Repeat("x", maxFound) + `"}}}`)
	if err := s.call("owner", patchObject, stopped()); err == nil || !strings.Contains(err.Error(), "more than the 16384 that are kept") || s.writes != 0 {
		t.Errorf("%d writes, got %v: it is refused before it is patched", s.writes, err)
	}
	s = newShop(t)
	s.edit(`{"metadata":{"annotations":{"restore.phasegate.dev/owner":"{"}}}`)
	if err := s.call("owner", unpatch, stopped()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v: what was there is not known", err)
	}
}
