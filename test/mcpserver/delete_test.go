package mcpserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// mcpServerFinalizer keeps an MCPServer, as phases/mcpserver.yaml says.
const mcpServerFinalizer = "mcpserver.toolhive.stacklok.dev/finalizer"

// stuck is a finalizer of somebody who does not come.
const stuck = "example.org/stuck"

func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	s := readySpace(t)
	s.kubectl("delete", "mcpserver", "fetch", "--timeout=3m")
	// The finalizer went last: all that was made is gone by now, without the garbage collector.
	s.assertNothingOf("Deployment", "StatefulSet", "Pod", "Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding")
	s.awaitNothing()
}

// awaitNothing waits until the garbage collector has taken the rest.
func (s *space) awaitNothing() {
	s.t.Helper()
	harness.Eventually(s.t, "the garbage collector", func() error {
		if left := s.everything(); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

func (s *space) everything() []string {
	s.t.Helper()
	var names []string
	s.objects(func(kind string, obj client.Object) { names = append(names, kind+" "+obj.GetName()) })
	return names
}

// assertNothingOf checks that no object of the kinds is in the namespace.
func (s *space) assertNothingOf(kinds ...string) {
	s.t.Helper()
	for _, name := range s.everything() {
		if kind, _, _ := strings.Cut(name, " "); slices.Contains(kinds, kind) {
			s.t.Errorf("%s is left", name)
		}
	}
}

func TestDeletionHeldUp(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why string
		// child gets a finalizer.
		child func(s *space) client.Object
		// names is what describe says about it; there and gone are kinds.
		names       string
		there, gone []string
	}{
		"by a proxy": {
			why:   "as long as a proxy lives it could put the StatefulSet back: nothing else is deleted before it is gone",
			child: func(s *space) client.Object { return &s.proxies("fetch")[0] },
			names: "Deployment", there: []string{"StatefulSet fetch", "Service mcp-fetch", "ConfigMap fetch-runconfig", "Role fetch-proxy-runner"},
		},
		"by the StatefulSet": {
			why:   "what the proxy needs goes last, and describe names what blocks",
			child: func(s *space) client.Object { return s.statefulSet("fetch") },
			names: "StatefulSet", there: []string{"StatefulSet fetch", "ConfigMap fetch-runconfig", "ServiceAccount fetch-sa"},
			gone: []string{"Deployment fetch"},
		},
		"by the ConfigMap": {
			why: "what is last holds the server, too",
			child: func(s *space) client.Object {
				cm := &corev1.ConfigMap{}
				s.read(v1beta1.RunConfigName("fetch"), cm)
				return cm
			},
			names: "ConfigMap", there: []string{"ConfigMap fetch-runconfig"}, gone: []string{"Deployment fetch", "StatefulSet fetch", "Service mcp-fetch"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			child := c.child(s)
			s.setFinalizers(child, stuck)

			s.kubectl("delete", "mcpserver", "fetch", "--wait=false")
			s.describes("fetch", "Phase: Terminating", "Waiting until these are gone", c.names, stuck)
			left := sets.New(s.everything()...)
			for _, want := range c.there {
				if !left.Has(want) {
					t.Errorf("%s is gone: %s", want, c.why)
				}
			}
			for _, want := range c.gone {
				if left.Has(want) {
					t.Errorf("%s is there: %s", want, c.why)
				}
			}
			if diff := cmp.Diff([]string{mcpServerFinalizer}, s.get("fetch").Finalizers); diff != "" {
				t.Errorf("the server goes before its children do (-want +got):\n%s", diff)
			}

			s.setFinalizers(child)
			s.awaitGone(&v1beta1.MCPServer{}, "fetch")
			s.assertNothingOf("Deployment", "StatefulSet", "Service", "ConfigMap", "ServiceAccount", "Role", "RoleBinding")
		})
	}
}

// setFinalizers replaces those of an object.
func (s *space) setFinalizers(obj client.Object, finalizers ...string) {
	s.t.Helper()
	list := "null"
	if len(finalizers) > 0 {
		list = `["` + strings.Join(finalizers, `","`) + `"]`
	}
	body := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+list+`}}`))
	if err := s.Client.Patch(s.t.Context(), obj, body); err != nil {
		s.t.Fatal(err)
	}
}

// A process may go on for a moment after its pod is gone, for example on a node
// that cannot be reached.
func TestProxyThatOutlivesItsServerLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	var zombie harness.Program
	s.editProxies(func(_ *corev1.Pod, p *harness.Program) { zombie = *p })
	s.create("fetch")
	s.awaitPhase("fetch", "Ready")
	s.kubectl("delete", "mcpserver", "fetch", "--timeout=3m")
	s.assertNothingOf("StatefulSet")
	made, err := s.Client.Watch(t.Context(), &appsv1.StatefulSetList{}, client.InNamespace(s.ns))
	if err != nil {
		t.Fatal(err)
	}
	defer made.Stop()

	// It has all rights, so that nothing but the owner that is no more is left to help.
	zombie.Name += "-zombie"
	zombie.Env = append(zombie.Env, "KUBECONFIG="+s.Kubeconfig)
	process := harness.ProcessForTest(t, zombie)
	select {
	case event := <-made.ResultChan():
		if event.Type != watch.Added {
			t.Fatalf("got %s, want that the proxy makes the StatefulSet: the test would show nothing", event.Type)
		}
	case <-time.After(harness.Patience):
		t.Fatalf("the proxy does nothing; it says:\n%s", process.Tail(20))
	}
	process.Kill()
	s.awaitNothing()
}
