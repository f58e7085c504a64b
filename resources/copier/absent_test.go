package copier

import (
	"context"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

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
		do  func(c *Copier) error
	}{
		"an edit": {"owners would stay off, and their record be dropped", func(c *Copier) error {
			found, err := c.Find(t.Context(), kindOf(t, "Tier").V1GVK(), func(*Meta) bool { return true })
			if err != nil || len(found) != 1 {
				t.Fatalf("found %v, %v; want one", found, err)
			}
			return c.EditAll(t.Context(), found, func(obj *Meta) error {
				obj.Labels = map[string]string{"a": "b"}
				return nil
			})
		}},
		"a deletion of copies": {"they would be left behind", func(c *Copier) error {
			_, err := c.DeleteCopies(t.Context(), true)
			return err
		}},
		"notes taken off": {"nobody would come again", func(c *Copier) error {
			_, err := c.RemoveMigrationAnnotations(t.Context())
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.v1("Tier", "metadata: {name: security}\nspec: {order: 5}")
			w.mustCopy(w.copier(interceptor.Funcs{}))
			if err := tc.do(w.copier(faults)); err == nil {
				t.Errorf("it was taken for done: %s", tc.why)
			}
		})
	}
}
