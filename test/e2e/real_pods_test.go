package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// podObjects is how many Calico objects there are.
	podObjects = 1000
	// podsApart is how many pods get their network before a migration, and after it.
	podsApart = 10
	// askAgain is how long a pod that was refused waits. A kubelet waits 10 s.
	askAgain = 50 * time.Millisecond
	// stuck is longer than a lock, and shorter than the plugin tries to write what is refused: 90 s.
	stuck = 15 * time.Second
)

// TestRealPodsWait measures for how long new pods get no network while a migration is made: Calico's own CNI plugin is asked
// for one pod after the other, for each until it has its network. The plugin's configuration follows as soon as v3 is open,
// as on a node whose calico-node is rolled at once; until then, pods on a node wait.
func TestRealPodsWait(t *testing.T) {
	calico.ForTest(t, calico.CNI, calico.IPAM)
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skipf("not run: network namespaces take root, and ip of iproute2 (%v)", err)
	}
	migrations := map[string]struct {
		programs []calico.Program
		limit    time.Duration // of what a pod may wait; 0: none
		migrate  func(t *testing.T, r *realCluster)
	}{
		"ours": {limit: stuck, migrate: func(t *testing.T, r *realCluster) {
			r.manager(t)
			r.do(t, r.Migrate(t.Context(), setup.MigrationName))
			r.await(t, setup.MigrationName, "Converged")
		}},
		"theirs": {programs: []calico.Program{calico.KubeControllers}, migrate: func(t *testing.T, r *realCluster) {
			r.takeTheirCRD(t)
			r.kubeControllers(t, "")
			r.do(t, r.Migrate(t.Context(), setup.MigrationName))
			if said := r.theirPhase(t, "Converged"); !strings.HasPrefix(said, "Converged") {
				t.Fatal(said)
			}
		}},
	}
	for name, m := range migrations {
		t.Run(name, func(t *testing.T) { // one after the other: it measures times
			r := &realCluster{release: calico.ForTest(t, append(m.programs, calico.CNI, calico.IPAM)...)}
			r.world = newWorld(t, setup.Options{Objects: slices.Concat(fixture.Mix(podObjects), pools(), []*unstructured.Unstructured{fixture.ClusterInformation()})})
			t.Cleanup(func() { r.do(t, r.Close()) })
			r.do(t, r.Grant(t.Context(), cniAccount, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}))
			r.plugin = calico.Plugin{Release: r.release, Kubeconfig: r.KubeconfigOf(cniAccount), Dir: t.TempDir()}
			pods := r.newPods(t)
			m.migrate(t, r)
			pods.group.Store(new(fixture.APIGroupV3)) // what install-cni writes, when calico-node has been rolled
			before := pods.count()
			harness.Eventually(t, "pods to get their network in v3", func() error { return pods.atLeast(before + podsApart) })
			lines, longest := pods.summary(t)
			report(t, "pods-"+name, lines)
			if m.limit > 0 && longest > m.limit {
				t.Errorf("a pod waited for %s: is the plugin refused what it has begun?", longest)
			}
		})
	}
}

// pools are what addresses are taken from.
func pools() []*unstructured.Unstructured {
	return slices.DeleteFunc(fixture.Demo(1, podObjects), func(obj *unstructured.Unstructured) bool { return obj.GetKind() != "IPPool" })
}

// newPods are pods of one node that come one after the other.
type newPods struct {
	group atomic.Pointer[string]
	end   func() // waits for the last one

	mu      sync.Mutex
	all     []startedPod
	refusal error // of the one that is waiting
}

// startedPod is a pod that has its network.
type startedPod struct {
	address string
	waited  time.Duration
	// refused is how often the plugin was asked in vain, and why.
	refused int
	why     error
}

// newPods begins with them, until summary is called or the test ends, and returns when some have their network.
func (r *realCluster) newPods(t *testing.T) *newPods {
	t.Helper()
	p := &newPods{}
	p.group.Store(new(""))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if err := p.start(ctx, r, fmt.Sprintf("new-%04d", i)); err != nil && ctx.Err() == nil {
				t.Errorf("start a pod: %v", err)
				return
			}
		}
	}()
	p.end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(p.end)
	harness.Eventually(t, "pods to get their network", func() error { return p.atLeast(podsApart) })
	return p
}

// start makes a pod with a network namespace, asks until it has its network, and removes the namespace.
func (p *newPods) start(ctx context.Context, r *realCluster, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	pod.Spec.NodeName = "node-0"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/none"}}
	if err := r.Client.Create(ctx, pod); err != nil {
		return err
	}
	netns := "phasegate-" + filepath.Base(r.plugin.Dir) + "-" + name
	if out, err := exec.CommandContext(ctx, "ip", "netns", "add", netns).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	defer func() { _ = exec.Command("ip", "netns", "delete", netns).Run() }() // its end of the pair goes, and so the other
	s := startedPod{}
	for began := time.Now(); ; s.refused++ {
		address, err := r.plugin.AddNetwork(ctx, calico.Pod{Name: name, Node: pod.Spec.NodeName}, "/var/run/netns/"+netns, *p.group.Load())
		p.mu.Lock()
		p.refusal = err
		p.mu.Unlock()
		if err == nil {
			s.address, s.waited = address, time.Since(began)
			break
		}
		s.why = err
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, s)
	return r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

func (p *newPods) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

func (p *newPods) atLeast(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) < n {
		return fmt.Errorf("%d pods have their network (%w)", len(p.all), p.refusal)
	}
	return nil
}

// summary ends it, and tells how long they waited, and the longest wait. Each has an address of its own: none of them gave its back.
func (p *newPods) summary(t *testing.T) ([]string, time.Duration) {
	t.Helper()
	p.end()
	var waits []time.Duration
	longest, had := startedPod{}, map[string]bool{}
	for _, s := range p.all {
		if had[s.address] {
			t.Errorf("two pods have %s", s.address)
		}
		had[s.address] = true
		waits = append(waits, s.waited)
		if s.waited > longest.waited {
			longest = s
		}
	}
	slices.Sort(waits)
	lines := []string{fmt.Sprintf("%d pods: half of them had their network after %d ms, the last to get it after %d ms", len(waits), waits[len(waits)/2].Milliseconds(), longest.waited.Milliseconds())}
	if longest.refused > 0 {
		lines = append(lines, fmt.Sprintf("that one was refused %d times, the last time: %.900s", longest.refused, longest.why))
	}
	return lines, longest.waited
}
