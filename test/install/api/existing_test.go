package api_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/patch"
)

// mcpServerFinalizer keeps an MCPServer, as phases/mcpserver.yaml says.
const mcpServerFinalizer = "mcpserver.toolhive.stacklok.dev/finalizer"

// What was made under the peer's CRD, as ours would refuse it today, must still be driven, changed and let go: otherwise nobody could even
// delete it.
func TestExistingObjectsCanBeChanged(t *testing.T) {
	c := ruled(t)
	for name := range legacy {
		t.Run(name, func(t *testing.T) {
			obj := &v1beta1.MCPServer{}
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: name}, obj); err != nil {
				t.Fatal(err)
			}
			steps := []struct {
				what string
				do   func() error
			}{
				{"take a finalizer", func() error { return patchSpec(t.Context(), c, obj, setFinalizers(mcpServerFinalizer)) }},
				{"change the image", func() error {
					return patchSpec(t.Context(), c, obj, func(s *v1beta1.MCPServer) { s.Spec.Image = "new" })
				}},
				{"write the status", func() error {
					return patch.MutateAndSwapStatus(t.Context(), c, obj, func(s *v1beta1.MCPServer) { s.SetDisplay("Ready", "") })
				}},
				{"delete it", func() error { return c.Delete(t.Context(), obj, client.Preconditions{UID: &obj.UID}) }},
				{"read it", func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) }},
				{"restore the finalizer", func() error { return patchSpec(t.Context(), c, obj, setFinalizers()) }},
			}
			for _, step := range steps {
				if err := step.do(); err != nil {
					t.Fatalf("%s: %v", step.what, err)
				}
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); client.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("it is still there (error %v)", err)
			}
		})
	}
}

func patchSpec(ctx context.Context, c client.Client, obj *v1beta1.MCPServer, change func(*v1beta1.MCPServer)) error {
	return patch.MutateAndPatchSpec(ctx, c, obj, change)
}

func setFinalizers(names ...string) func(*v1beta1.MCPServer) {
	return func(s *v1beta1.MCPServer) { s.Finalizers = names }
}

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		why  string
		spec object
		want object // besides what was written
	}{
		"Minimal": {
			why:  "an image is all that most manifests say",
			spec: object{"image": "i"},
			want: object{
				"transport": "stdio", "proxyMode": "streamable-http", "proxyPort": int64(8080),
				"sessionAffinity": "ClientIP", "trustProxyHeaders": false,
			},
		},
		"Nested": {
			why: "defaults of parts that are there, and of none that are not",
			spec: object{
				"image": "i", "transport": "sse", "proxyMode": "sse", "proxyPort": int64(1), "sessionAffinity": "None", "trustProxyHeaders": true,
				"volumes":           list(object{"name": "a", "hostPath": "/a", "mountPath": "/b"}),
				"permissionProfile": object{"name": "none"},
				"sessionStorage":    object{"provider": "memory"},
			},
			want: object{
				"volumes":           list(object{"name": "a", "hostPath": "/a", "mountPath": "/b", "readOnly": false}),
				"permissionProfile": object{"name": "none", "type": "builtin"},
				"sessionStorage":    object{"provider": "memory", "db": int64(0)},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := ruled(t)
			for _, version := range served {
				got := server(version, "defaults", tc.spec)
				if err := c.Create(t.Context(), got, client.DryRunAll); err != nil {
					t.Fatal(err)
				}
				want := object{}
				for _, from := range []object{tc.spec, tc.want} {
					for field, value := range from {
						want[field] = value
					}
				}
				if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", tc.why, version, diff)
				}
			}
		})
	}
}

// What our Go types do not know, and what another controller owns, must survive
// that we read an object, change it and write it. A full update is tried as well:
// it shows that this test can fail, and why the linter forbids updates.
func TestForeignFieldsSurvive(t *testing.T) {
	change := func(s *v1beta1.MCPServer) { s.Spec.Image = "j" }
	foreign := object{"deep": list(int64(1), "two")}
	cases := map[string]struct {
		why   string
		write func(context.Context, client.Client, *v1beta1.MCPServer) error
		lost  bool // spec.fromTheFuture
	}{
		"patch": {
			why: "only what we changed is sent",
			write: func(ctx context.Context, c client.Client, s *v1beta1.MCPServer) error {
				return patch.MutateAndPatchSpec(ctx, c, s, change)
			},
		},
		"update": {
			why: "what we cannot read we cannot send back",
			write: func(ctx context.Context, c client.Client, s *v1beta1.MCPServer) error {
				change(s)
				return c.Update(ctx, s)
			},
			lost: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := ruled(t)
			before := shareServer(t, c, "foreign-"+name, foreign)
			obj := &v1beta1.MCPServer{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(before), obj); err != nil {
				t.Fatal(err)
			}
			if err := tc.write(t.Context(), c, obj); err != nil {
				t.Fatal(err)
			}
			after := server("v1beta1", before.GetName(), nil)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(after), after); err != nil {
				t.Fatal(err)
			}
			want := before.Object["spec"].(object)
			want["image"] = "j"
			if tc.lost {
				delete(want, "fromTheFuture")
			}
			got := after.Object["spec"].(object)
			delete(got, "resources") // an update sends the empty struct
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: spec after our write (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// shareServer makes a server of which another controller owns spec.authzConfig,
// and which has fields that our Go types do not know.
func shareServer(t *testing.T, c client.Client, name string, foreign any) *unstructured.Unstructured {
	t.Helper()
	mine := server("v1beta1", name, object{
		"image": "i", "fromTheFuture": foreign,
		"podTemplateSpec": object{"spec": object{"containers": list(object{"name": "mcp", "unheardOf": true})}},
	})
	if err := c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), mine); err != nil {
			t.Error(err)
		}
	})
	theirs := server("v1beta1", name, object{"authzConfig": object{"type": "inline", "inline": object{"policies": list("permit(principal, action, resource);")}}})
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(theirs), client.FieldOwner("authz-controller")); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil {
		t.Fatal(err)
	}
	return mine
}

// warnings notes what the API server has to say beside its answers.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func TestOldVersionWarns(t *testing.T) {
	ruled(t)
	heard := map[string]bool{}
	for _, version := range served {
		w := &warnings{}
		cfg := rest.CopyConfig(shared.Cluster(t).Config)
		cfg.WarningHandler = w
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), server(version, "warned", object{"image": "i"}), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		heard[version] = slices.ContainsFunc(w.said, func(s string) bool { return strings.Contains(s, "use v1beta1") })
	}
	if diff := cmp.Diff(map[string]bool{"v1alpha1": true, "v1beta1": false}, heard); diff != "" {
		t.Errorf("told to use v1beta1 (-want +got):\n%s", diff)
	}
}
