package copier

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// answer is what becomes of creates of the object a.
type answer struct {
	why  string
	err  error
	once bool // the next one is answered as by any API server
	lost bool // the object is made, and nobody learns of it
	goes bool // the object of v1 goes meanwhile
	want Counts
	// fails tells that the copy ends with an error.
	fails bool
}

func (a answer) faults(w *world) interceptor.Funcs {
	asked := 0
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if obj.GetName() != "a" {
			return c.Create(ctx, obj, opts...)
		}
		if asked++; asked > 1 && a.once {
			return c.Create(ctx, obj, opts...)
		}
		if a.lost {
			w.must(c.Create(ctx, obj.DeepCopyObject().(client.Object), opts...))
		}
		if a.goes && asked == 1 {
			gone := named(v1("NetworkSet"), "a")
			gone.SetNamespace("ns")
			w.remove(gone)
		}
		return a.err
	}}
}

// What is wrong with one object stops no other one. What is not its fault is waited for, and then an error of the copy:
// no object is rejected for it.
func TestAnswersToACreate(t *testing.T) {
	right := apierrs.NewForbidden(schema.GroupResource{Group: resources.V3Group, Resource: "networksets"}, "",
		errors.New(`User "u" cannot create resource "networksets" in API group "projectcalico.org" at the cluster scope`))
	ended := apierrs.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")
	for name, tc := range map[string]answer{
		"invalid":               {why: "the object is to blame", err: apierrs.NewInvalid(schema.GroupKind{Kind: "NetworkSet"}, "a", nil), want: Counts{Created: 2, Rejected: 1}},
		"lost":                  {why: "the second create finds what the first has made", err: syscall.ECONNRESET, once: true, lost: true, want: Counts{Created: 2, Kept: 1}},
		"no right yet":          {why: "an API server that was started a moment ago knows no RBAC", err: right, once: true, want: Counts{Created: 3}},
		"no right":              {why: "another object would fare no better", err: right, fails: true},
		"away":                  {why: "the server has said nothing of the object", err: syscall.ECONNREFUSED, fails: true},
		"gone with a namespace": {why: "it may end under the lock as well, and that is no reason to give up", err: ended, goes: true, want: Counts{Created: 2, Terminating: 1}},
		"outlives a namespace":  {why: "v1 has it, all alone, and v3 would lack it", err: ended, want: Counts{Created: 2, Rejected: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{"a", "b", "c"} {
				w.v1("NetworkSet", "metadata: {namespace: ns, name: "+name+"}\nspec: {nets: [10.0.0.0/8]}")
			}
			c := w.copier(tc.faults(w))
			result, err := c.Copy(t.Context(), nil)
			if tc.fails {
				if err == nil || !strings.Contains(err.Error(), "NetworkSet ns/a") || len(result.Rejected) > 0 {
					t.Errorf("rejected %v, error %v, want an error that names the object: %s", result.Rejected, err, tc.why)
				}
				return
			}
			w.must(err)
			w.wantCounts(tc.why, result, tc.want)
			var refused []string
			if tc.want.Rejected > 0 {
				refused = []string{"RejectedByServer a"}
			}
			if diff := cmp.Diff(refused, collisions(result.Rejected)); diff != "" {
				t.Errorf("%s: rejected (-want +got):\n%s", tc.why, diff)
			}
			if v := w.mustVerify(c); len(v.Missing) != len(refused) || v.OK() != (len(refused) == 0) {
				t.Errorf("verify: %+v: %s", v, tc.why)
			}
		})
	}
}

func TestFailedListIsNeverAnEmptyOne(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		fault error
		noCRD bool
	}{
		"server error": {why: "nothing is known", fault: apierrs.NewInternalError(errors.New("etcd"))},
		"forbidden":    {why: "nothing is known", fault: apierrs.NewForbidden(schema.GroupResource{Resource: "tiers"}, "", nil)},
		"not served":   {why: "its CRD is there", fault: apierrs.NewNotFound(schema.GroupResource{Resource: "tiers"}, "")},
		"no v1 CRD":    {why: "a kind that v1 never had is in nobody's way", fault: apierrs.NewNotFound(schema.GroupResource{Resource: "tiers"}, ""), noCRD: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.noCRD {
				w.remove(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "tiers.crd.projectcalico.org"}})
			}
			c := w.copier(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if gvk := list.GetObjectKind().GroupVersionKind(); gvk.Kind == "TierList" && (gvk.Group == resources.V1Group || !tc.noCRD) {
					return tc.fault
				}
				return c.List(ctx, list, opts...)
			}})
			for name, call := range map[string]func() error{
				"Plan":    func() error { _, err := c.Plan(t.Context(), true); return err },
				"Copy":    func() error { _, err := c.Copy(t.Context(), nil); return err },
				"Compare": func() error { _, err := c.Compare(t.Context()); return err },
				"Verify":  func() error { _, err := c.Verify(t.Context()); return err },
				"Remap":   func() error { _, err := c.RemapOwners(t.Context()); return err },
				"Delete":  func() error { _, err := c.DeleteCopies(t.Context(), false); return err },
			} {
				if err := call(); (err == nil) != tc.noCRD || err != nil && !strings.Contains(err.Error(), "Tier") {
					t.Errorf("%s says %v: %s", name, err, tc.why)
				}
			}
		})
	}
}

// An API server that does not serve a kind (yet) has not said that an object of it is gone: what was to be done to it is
// not done.
func TestWhatIsNotServedIsNotGone(t *testing.T) {
	notServed := apierrs.NewGenericServerResponse(404, "patch", schema.GroupResource{Resource: "tiers"}, "security", "404 page not found", 0, true)
	faults := interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return notServed
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return notServed },
	}
	for name, tc := range map[string]struct {
		why string
		do  func(w *world, c *Copier) error
	}{
		"an edit": {"owners would stay off, and their record be dropped", func(w *world, c *Copier) error {
			return c.EditAll(t.Context(), w.find(c, "security"), func(obj *Meta) error {
				obj.Labels = map[string]string{"a": "b"}
				return nil
			})
		}},
		"a deletion of copies": {"they would be left behind", func(_ *world, c *Copier) error {
			_, err := c.DeleteCopies(t.Context(), true)
			return err
		}},
		"notes taken off": {"nobody would come again", func(_ *world, c *Copier) error {
			_, err := c.RemoveMigrationAnnotations(t.Context())
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
			w.mustCopy(w.copier(interceptor.Funcs{}))
			if err := tc.do(w, w.copier(faults)); err == nil {
				t.Errorf("it was taken for done: %s", tc.why)
			}
		})
	}
}

// find is the tier of this name, if it is there.
func (w *world) find(c *Copier, name string) []*Meta {
	w.Helper()
	found, err := c.Find(w.Context(), v1("Tier"), func(obj *Meta) bool { return obj.Name == name })
	w.must(err)
	return found
}

// Who may list and patch may edit. An object that changes between the list and the patch is read again, and
// the right to get whatever may have an owner, each Secret of the cluster among it, is granted to nobody.
func TestEditNeedsNoRightToGet(t *testing.T) {
	for name, tc := range map[string]struct {
		why       string
		meanwhile func(*world)
		edited    bool // in the end; else the object is gone
	}{
		"changed": {"what others wrote stays", func(w *world) { w.patch(named(v1("Tier"), "security"), `{"metadata": {"labels": {"a": "b"}}}`) }, true},
		"gone":    {"nothing is left to change", func(w *world) { w.remove(named(v1("Tier"), "security")) }, false},
		"other": {"an object of the same kind is another one", func(w *world) {
			w.remove(named(v1("Tier"), "security"))
			w.v1("Tier", "metadata: {name: security-too}\nspec: {order: 20}")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.copier(interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				t.Errorf("%s is read by its name", key)
				return nil
			}})
			w.v1("Tier", "metadata: {name: security}\nspec: {order: 10}")
			found := w.find(c, "security")
			tc.meanwhile(w)
			w.must(c.EditAll(t.Context(), found, func(obj *Meta) error {
				obj.Annotations = map[string]string{"example.org/detached": "yes"}
				return nil
			}))
			var want, got []string
			if tc.edited {
				want = []string{"yes b"}
			}
			for _, obj := range w.find(c, "security") {
				got = append(got, obj.Annotations["example.org/detached"]+" "+obj.Labels["a"])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
