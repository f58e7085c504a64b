package copier_test

import (
	"context"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources/copier"
)

// Who may list and patch may edit. An object that changes between the list and the patch is read again, and
// the right to get whatever may have an owner, each Secret of the cluster among it, is granted to nobody.
func TestEditNeedsNoRightToGet(t *testing.T) {
	const detached = "example.org/detached"
	cases := map[string]struct {
		why       string
		meanwhile func(*scene)
		want      string // the annotation at the end; empty: the object is gone
	}{
		"changed": {"what others wrote stays", func(s *scene) {
			s.patch(s.get(v1("Tier"), "security"), `{"metadata": {"labels": {"a": "b"}}}`)
		}, "yes"},
		"gone": {"nothing is left to change", func(s *scene) { s.remove(s.get(v1("Tier"), "security")) }, ""},
		"other": {"an object of the same kind is another one", func(s *scene) {
			s.remove(s.get(v1("Tier"), "security"))
			s.v1("Tier", "metadata: {name: security-too}\nspec: {order: 20}")
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				t.Errorf("%s is read by its name", key)
				return nil
			}})
			s.v1("Tier", "metadata: {name: security}\nspec: {order: 10}")
			found, err := s.copier.Find(t.Context(), v1("Tier"), func(obj *copier.Meta) bool { return obj.Name == "security" })
			if err != nil || len(found) != 1 {
				t.Fatalf("found %v (%v), want one Tier", found, err)
			}
			c.meanwhile(s)
			err = s.copier.EditAll(t.Context(), found, func(obj *copier.Meta) error {
				obj.Annotations = map[string]string{detached: "yes"}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			left, err := s.copier.Find(t.Context(), v1("Tier"), func(obj *copier.Meta) bool { return obj.Name == "security" })
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && len(left) > 0 || c.want != "" && !slices.ContainsFunc(left, func(obj *copier.Meta) bool {
				return obj.Annotations[detached] == c.want && obj.Labels["a"] == "b"
			}) {
				t.Errorf("%+v is left: %s", left, c.why)
			}
		})
	}
}
