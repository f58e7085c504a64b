package mcpserver

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

func TestGenerationIsFrozenInThePod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create("fetch")
	srv := s.awaitPhase("fetch", "Ready")
	proxy, backend := s.deployment("fetch").Spec.Template, s.statefulSet("fetch")
	want := fmt.Sprint(srv.Generation)
	for where, annotations := range map[string]map[string]string{
		"the proxy's pods": proxy.Annotations, "the StatefulSet": backend.Annotations, "the backend's pods": backend.Spec.Template.Annotations,
	} {
		if got := annotations[v1beta1.AnnotationGeneration]; got != want {
			t.Errorf("%s bear generation %q, want %q", where, got, want)
		}
	}
	env := proxy.Spec.Containers[0].Env
	i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == v1beta1.EnvGeneration })
	if i < 0 {
		t.Fatalf("no %s in %v", v1beta1.EnvGeneration, env)
	}
	wantEnv := corev1.EnvVar{Name: v1beta1.EnvGeneration, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['" + v1beta1.AnnotationGeneration + "']",
	}}}
	if diff := cmp.Diff(wantEnv, env[i]); diff != "" {
		t.Errorf("how a proxy learns the generation (-want +got):\n%s", diff)
	}
}

func TestChangesThatReplaceNoPod(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why  string
		edit func(*v1beta1.MCPServer)
		// seen is nil once the change has arrived.
		seen func(s *space) error
	}{
		"replicas": {
			why:  "a proxy more is a proxy more: sessions of the others go on",
			edit: func(srv *v1beta1.MCPServer) { srv.Spec.Replicas = ptr.To[int32](2) },
			seen: func(s *space) error { return same(2, int(s.deployment("fetch").Status.ReadyReplicas)) },
		},
		"backend replicas": {
			why:  "sessions of the backend that is there go on",
			edit: func(srv *v1beta1.MCPServer) { srv.Spec.BackendReplicas = ptr.To[int32](2) },
			seen: func(s *space) error { return same(2, int(s.statefulSet("fetch").Status.ReadyReplicas)) },
		},
		"labels": {
			why: "labels of the Deployment are not those of its pods",
			edit: func(srv *v1beta1.MCPServer) {
				srv.Spec.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{
					MetadataOverrides: v1beta1.MetadataOverrides{Labels: map[string]string{"team": "a"}},
				}}
			},
			seen: func(s *space) error { return same("a", s.deployment("fetch").Labels["team"]) },
		},
		"Service": {
			why: "pods know nothing of the Service before them",
			edit: func(srv *v1beta1.MCPServer) {
				srv.Spec.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyService: &v1beta1.MetadataOverrides{Annotations: map[string]string{"lb": "internal"}}}
			},
			seen: func(s *space) error {
				svc := &corev1.Service{}
				s.read(v1beta1.ProxyServiceName("fetch"), svc)
				return same("internal", svc.Annotations["lb"])
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			before := s.workload("fetch")
			s.edit("fetch", c.edit)
			harness.Eventually(t, "the change to arrive", func() error { return c.seen(s) })
			s.awaitPhase("fetch", "Ready")
			after := s.workload("fetch")
			if !sets.New(after.Proxies...).HasAll(before.Proxies...) || !sets.New(after.Backends...).HasAll(before.Backends...) {
				t.Errorf("%s, but pods were replaced:\n%s", c.why, cmp.Diff(before, after))
			}
			after.Proxies, after.Backends = before.Proxies, before.Backends
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s, but a pod template changed (-before +after):\n%s", c.why, diff)
			}
		})
	}
}

func same[T comparable](want, got T) error {
	if want != got {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// During a rolling update an old proxy starts again: its image is from then, the file that
// it reads is from now.
func TestOldProxyDoesNotPutTheOldImageBack(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why string
		// edit changes what is started for proxies.
		edit proxyEdit
		// says is in the log of the process once it has decided, want the image then.
		says, want string
	}{
		"frozen": {
			why:  "its pod says of which generation it is",
			says: "StatefulSet fetch is of generation", want: secondImage,
		},
		"not frozen": {
			why:  "without the freeze it puts the old image back, or the other case could not fail",
			edit: withoutGeneration, want: firstImage,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			old := s.proxies("fetch")[0]
			s.awaitHealthy(old.Name)
			// From now on a new pod counts as available after eight minutes only: the old one stays.
			s.kubectl("patch", "deployment", "fetch", "--type=merge", "-p", `{"spec":{"minReadySeconds":500}}`)

			s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Image = secondImage })
			harness.Eventually(t, "a new proxy to apply the new image", func() error {
				return same(secondImage, s.imageOf("fetch"))
			})
			s.editProxies(c.edit)
			name := s.key(old.Name)
			before := s.logOf(name)
			if err := s.pods.Restart(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the old proxy to decide", func() error {
				if said := strings.TrimPrefix(s.logOf(name), before); !strings.Contains(said, c.says) {
					return fmt.Errorf("it says:\n%s", said)
				}
				if err := same(c.want, s.imageOf("fetch")); err != nil {
					return fmt.Errorf("%s: %w", c.why, err)
				}
				return nil
			})
		})
	}
}

func withoutGeneration(_ *corev1.Pod, p *harness.Program) {
	p.Env = slices.DeleteFunc(slices.Clone(p.Env), func(v string) bool { return strings.HasPrefix(v, v1beta1.EnvGeneration+"=") })
}

// logOf is what all processes of a pod have said.
func (s *space) logOf(pod types.NamespacedName) string {
	s.t.Helper()
	process, err := s.pods.Process(pod)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(process.Log)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}
