package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	proxyImage = "registry.example/proxyrunner:1"
	// firstImage and secondImage are MCP servers that nobody runs.
	firstImage  = "registry.example/fetch:1"
	secondImage = "registry.example/fetch:2"
)

var apiTypes = []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1alpha1.AddToScheme}

// space is a namespace for a test, and the words in which tests speak of what is
// in it. Each of them ends the test when it fails.
type space struct {
	*world
	t  *testing.T
	ns string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	w, err := setUp()
	if err != nil {
		t.Fatal(err)
	}
	return spaceIn(t, w)
}

// spaceIn is newSpace in a world of the test's own.
func spaceIn(t *testing.T, w *world) *space {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := w.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s := &space{world: w, t: t, ns: ns.Name}
	t.Cleanup(func() {
		if t.Failed() {
			s.show()
		}
	})
	return s
}

// readySpace is a namespace with a server called fetch that is Ready.
func readySpace(t *testing.T) *space {
	t.Helper()
	s := newSpace(t)
	s.create("fetch")
	s.awaitPhase("fetch", "Ready")
	return s
}

// show logs what a person would look at.
func (s *space) show() {
	s.t.Helper()
	for _, args := range [][]string{
		{"get", "mcpserver,deployment,replicaset,statefulset,pod,service", "-o", "wide"}, {"describe", "mcpserver"},
	} {
		out, err := s.tryKubectl(args...)
		s.t.Logf("kubectl %s (%v):\n%s", strings.Join(args, " "), err, out)
	}
	s.t.Logf("the end of what the manager said:\n%s", s.manager.Tail(15))
	logs, _ := filepath.Glob(filepath.Join(s.LogDir, s.ns+"-*.log")) // the pattern is good
	for _, path := range logs {
		text, err := os.ReadFile(path)
		s.t.Logf("%s (%v):\n%s", filepath.Base(path), err, text[max(0, len(text)-2000):])
	}
}

// create makes a server as small as can be, with edits.
func (s *space) create(name string, edits ...func(*v1beta1.MCPServer)) {
	s.t.Helper()
	srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	srv.Spec.Image, srv.Spec.Transport = firstImage, v1beta1.TransportStreamableHTTP
	for _, edit := range edits {
		edit(srv)
	}
	if err := s.Client.Create(s.t.Context(), srv); err != nil {
		s.t.Fatal(err)
	}
}

// accepting says that fields which the proxy does not enforce are known of.
func accepting(fields string) func(*v1beta1.MCPServer) {
	return func(srv *v1beta1.MCPServer) {
		srv.Annotations = map[string]string{v1beta1.AnnotationAcceptNotEnforced: fields}
	}
}

func (s *space) get(name string) *v1beta1.MCPServer {
	s.t.Helper()
	srv := &v1beta1.MCPServer{}
	s.read(name, srv)
	return srv
}

func (s *space) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.ns, Name: name}
}

// read reads an object of the namespace.
func (s *space) read(name string, obj client.Object) {
	s.t.Helper()
	if err := s.Client.Get(s.t.Context(), s.key(name), obj); err != nil {
		s.t.Fatal(err)
	}
}

// edit changes a server as a person does who edits it.
func (s *space) edit(name string, edit func(*v1beta1.MCPServer)) {
	s.t.Helper()
	srv := s.get(name)
	before := srv.DeepCopy()
	edit(srv)
	if err := s.Client.Patch(s.t.Context(), srv, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// annotate sets annotations of a server, as `kubectl annotate --overwrite` does.
func (s *space) annotate(name string, set map[string]string) {
	s.t.Helper()
	s.edit(name, func(srv *v1beta1.MCPServer) {
		if srv.Annotations == nil {
			srv.Annotations = map[string]string{}
		}
		maps.Copy(srv.Annotations, set)
	})
}

// until waits until a server is as met says.
func (s *space) until(name, what string, met func(*v1beta1.MCPServer) error) *v1beta1.MCPServer {
	s.t.Helper()
	srv := &v1beta1.MCPServer{}
	harness.Eventually(s.t, name+" "+what, func() error {
		if err := s.manager.Alive(); err != nil {
			return err
		}
		if err := s.Client.Get(s.t.Context(), s.key(name), srv); err != nil {
			return err
		}
		if err := met(srv); err != nil {
			return fmt.Errorf("%w; phase %q, step %q: %s", err, srv.Status.Phase, srv.Status.Machine.Step, srv.Status.Message)
		}
		return nil
	})
	return srv
}

// awaitPhase waits until a server shows a phase for the spec that it has.
func (s *space) awaitPhase(name, phase string) *v1beta1.MCPServer {
	s.t.Helper()
	return s.until(name, "in phase "+phase, func(srv *v1beta1.MCPServer) error {
		switch {
		case srv.Status.Phase != phase:
			return errors.New("another phase")
		case srv.Status.ObservedGeneration != srv.Generation:
			return fmt.Errorf("generation %d observed, want %d", srv.Status.ObservedGeneration, srv.Generation)
		}
		return nil
	})
}

// awaitCondition waits until a condition of a server has a status and a reason.
func (s *space) awaitCondition(name, kind string, status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	s.until(name, fmt.Sprintf("with %s=%s, %s", kind, status, reason), func(srv *v1beta1.MCPServer) error {
		c := meta.FindStatusCondition(srv.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("condition is %+v", c)
		}
		return nil
	})
}

// awaitNoCondition waits until a condition that applied does not any more.
func (s *space) awaitNoCondition(name, kind string) {
	s.t.Helper()
	s.until(name, "without "+kind, func(srv *v1beta1.MCPServer) error {
		if c := meta.FindStatusCondition(srv.Status.Conditions, kind); c != nil {
			return fmt.Errorf("condition is %+v", *c)
		}
		return nil
	})
}

// awaitGone waits until an object of the namespace does not exist.
func (s *space) awaitGone(obj client.Object, name string) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprintf("%T %s to be gone", obj, name), func() error {
		err := s.Client.Get(s.t.Context(), s.key(name), obj)
		if apierrs.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

func (s *space) deployment(name string) *appsv1.Deployment {
	s.t.Helper()
	d := &appsv1.Deployment{}
	s.read(name, d)
	return d
}

func (s *space) statefulSet(name string) *appsv1.StatefulSet {
	s.t.Helper()
	sts := &appsv1.StatefulSet{}
	s.read(name, sts)
	return sts
}

// workload is the pods of a server, and how many pod templates each part has had.
type workload struct {
	Proxies, Backends       []types.UID
	ReplicaSets, Revisions  int
	Proxy, Backend, Restart string
}

// proxies and backends are the pods that are not being deleted.
func (s *space) proxies(name string) []corev1.Pod  { return s.livePods(v1beta1.ProxyLabels(name)) }
func (s *space) backends(name string) []corev1.Pod { return s.livePods(v1beta1.BackendSelector(name)) }

func (s *space) livePods(labels map[string]string) []corev1.Pod {
	s.t.Helper()
	list := &corev1.PodList{}
	s.list(list, labels)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (s *space) list(list client.ObjectList, labels map[string]string) {
	s.t.Helper()
	if err := s.Client.List(s.t.Context(), list, client.InNamespace(s.ns), client.MatchingLabels(labels)); err != nil {
		s.t.Fatal(err)
	}
}

// workload looks at the pods of a server; with the same result before and after,
// nothing was replaced in between.
func (s *space) workload(name string) workload {
	s.t.Helper()
	sets, revisions := &appsv1.ReplicaSetList{}, &appsv1.ControllerRevisionList{}
	s.list(sets, v1beta1.ProxyLabels(name))
	s.list(revisions, v1beta1.BackendSelector(name))
	proxy, backend := s.deployment(name).Spec.Template, s.statefulSet(name).Spec.Template
	return workload{
		Proxies: uids(s.proxies(name)), Backends: uids(s.backends(name)),
		ReplicaSets: len(sets.Items), Revisions: len(revisions.Items),
		Proxy: proxy.Annotations[v1beta1.AnnotationGeneration], Backend: backend.Annotations[v1beta1.AnnotationGeneration],
		Restart: strings.TrimSpace(proxy.Annotations[v1beta1.AnnotationRestartedAt] + " " + backend.Annotations[v1beta1.AnnotationRestartedAt]),
	}
}

func uids(pods []corev1.Pod) []types.UID {
	var out []types.UID
	for _, p := range pods {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return out
}

// imageOf is the image of the backend.
func (s *space) imageOf(name string) string {
	s.t.Helper()
	return s.statefulSet(name).Spec.Template.Spec.Containers[0].Image
}

func (s *space) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.tryKubectl(args...)
	if err != nil {
		s.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// tryKubectl runs the real one in the test's namespace; also when the test cleans up.
func (s *space) tryKubectl(args ...string) (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "tools", "kubectl"), append([]string{"-n", s.ns}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// describes waits until kubectl describe says all parts, in any order. Events are
// written aside, a moment after what they tell of.
func (s *space) describes(name string, parts ...string) {
	s.t.Helper()
	var text string
	harness.Eventually(s.t, "kubectl describe to say all", func() error {
		text = s.kubectl("describe", "mcpserver", name)
		// Columns are padded as needed.
		flat := strings.Join(strings.Fields(text), " ")
		for _, part := range parts {
			if !strings.Contains(flat, part) {
				return fmt.Errorf("it does not say %q:\n%s", part, text)
			}
		}
		return nil
	})
}
