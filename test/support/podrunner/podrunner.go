// Package podrunner runs the programs of pods on a cluster whose nodes only
// pretend to: for each pod that runs and has a container of a given name, a real
// process with the container's arguments and environment, the ConfigMaps that it
// mounts as files, kept up to date, and the rights of the pod's own ServiceAccount.
// A process that ends is started again, unless its pod says that it never is: then
// the pod has succeeded or failed. One whose pod goes is stopped, and its pod is there
// until it has ended, as with a kubelet: it has a finalizer of ours.
//
// It knows nothing of what the program does, but how it is told where to listen: an
// argument that is a port of all addresses (":8080"), or `host` of its
// runconfig.json, becomes an address of the pod's own, so that pods may use the same
// port; `target_host` there becomes one at which nobody is (Runner.Target), since other
// containers are left to the nodes.
package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// workers is how many pods are handled at once. Most of them wait for a process to end.
	workers = 16
	// grace is how long a process may take to end when it is asked to.
	grace = 5 * time.Second
	// again is how soon a process that has ended is started again.
	again = 300 * time.Millisecond
	// tailLines is how much of what a process said becomes the message of its end.
	tailLines = 20
)

// Options say which pods are run, and how.
type Options struct {
	Cluster *harness.Cluster
	// Programs are the binaries that stand for the images of containers, by the names
	// of the containers. Of a pod, the first that has one is run.
	Programs map[string]string
	// Edit has the last word on what is started for a pod; nil for nothing.
	Edit func(*corev1.Pod, *harness.Program)
}

// Runner runs the programs of pods until Stop.
type Runner struct {
	Options
	core       kubernetes.Interface
	dir        string
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	pods       listers.PodLister
	configMaps listers.ConfigMapLister
	end        func()

	mu sync.Mutex
	// running holds the processes that were started, by the names of their pods.
	running map[types.NamespacedName]*running
	// failed holds why the process of a pod could not be started the last time.
	failed  map[types.NamespacedName]error
	crashed []string
	// network is what no other Runner of this machine has; addresses counts those of
	// it that were given away.
	network   network
	addresses int
}

// running is a process and what it was started for.
type running struct {
	*harness.Process
	uid types.UID
	// host is where it listens, target where it looks for others.
	host, target string
	dir          string
	// starts counts the processes that this pod has had.
	starts int
	// killed says that Restart or Lose has ended it; after Lose, no other follows.
	killed, lost bool
}

// Start runs the programs of all pods of the cluster, and of those that come. The
// caller stops it.
func Start(o Options) (*Runner, error) {
	core, err := kubernetes.NewForConfig(o.Cluster.Config)
	if err != nil {
		return nil, fmt.Errorf("run pods: %w", err)
	}
	factory := informers.NewSharedInformerFactory(core, 0)
	own, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("run pods: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{
		Options: o, core: core, network: own, dir: filepath.Join(o.Cluster.LogDir, "pods"),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		pods:       factory.Core().V1().Pods().Lister(),
		configMaps: factory.Core().V1().ConfigMaps().Lister(),
		running:    map[types.NamespacedName]*running{}, failed: map[types.NamespacedName]error{},
	}
	if err := errors.Join(
		r.listen(factory.Core().V1().Pods().Informer(), r.podChanged),
		r.listen(factory.Core().V1().ConfigMaps().Informer(), r.configMapChanged),
	); err != nil {
		cancel()
		own.release()
		return nil, fmt.Errorf("run pods: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var work sync.WaitGroup
	for range workers {
		work.Go(func() { r.work(ctx) })
	}
	r.end = sync.OnceFunc(func() {
		cancel()
		r.queue.ShutDown()
		work.Wait()
		factory.Shutdown()
		// At once: one that drains its streams takes all of its grace.
		var ends sync.WaitGroup
		for _, name := range r.names() {
			ends.Go(func() { r.stop(name) })
		}
		ends.Wait()
		r.network.release()
	})
	return r, nil
}

// Stop ends all processes. It may be called twice.
func (r *Runner) Stop() { r.end() }

// Process is that of a pod: an error if there is none, which tells why.
func (r *Runner) Process(pod types.NamespacedName) (*harness.Process, error) {
	p := r.of(pod)
	if p == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, errors.Join(fmt.Errorf("no process of pod %s", pod), r.failed[pod])
	}
	return p.Process, nil
}

// Host is the address at which the process of a pod is to listen; empty if it has none.
func (r *Runner) Host(pod types.NamespacedName) string {
	if p := r.of(pod); p != nil {
		return p.host
	}
	return ""
}

// Target is the address at which the process of a pod looks for its server, at the port that
// its runconfig.json says: nobody is there until the caller starts one. Empty if the pod has none.
func (r *Runner) Target(pod types.NamespacedName) string {
	if p := r.of(pod); p != nil {
		return p.target
	}
	return ""
}

// Crashed tells of each process that has ended although nobody ended it: its pod,
// and what it said last.
func (r *Runner) Crashed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.crashed)
}

// Restart ends the process of a pod with SIGKILL, as if it had crashed, and waits
// until there is another.
func (r *Runner) Restart(ctx context.Context, pod types.NamespacedName) error {
	p := r.of(pod)
	if p == nil {
		return fmt.Errorf("restart the process of pod %s: there is none", pod)
	}
	r.mu.Lock()
	p.killed = true
	r.mu.Unlock()
	p.Kill()
	return harness.Await(ctx, "another process of pod "+pod.String(), startLimit, func(context.Context) error {
		if now := r.of(pod); now == nil || now.starts == p.starts {
			return errors.New("none yet")
		}
		return nil
	})
}

// Lose ends the process of a pod with SIGKILL for good, as if its node were gone and
// nobody knew it yet: no other follows while there is the pod.
func (r *Runner) Lose(pod types.NamespacedName) error {
	p := r.of(pod)
	if p == nil {
		return fmt.Errorf("lose the process of pod %s: there is none", pod)
	}
	r.mu.Lock()
	p.killed, p.lost = true, true
	r.mu.Unlock()
	p.Kill()
	return nil
}

// startLimit is many times what a start takes.
const startLimit = 20 * time.Second

func (r *Runner) of(pod types.NamespacedName) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[pod]
}

func (r *Runner) isLost(p *running) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.lost
}

func (r *Runner) names() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []types.NamespacedName
	for name := range r.running {
		names = append(names, name)
	}
	return names
}

func (r *Runner) listen(informer cache.SharedIndexInformer, changed func(any)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			changed(object)
		},
	})
	return err
}

func (r *Runner) podChanged(object any) {
	if pod, ok := object.(*corev1.Pod); ok && r.containerOf(pod) != nil {
		r.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (r *Runner) configMapChanged(object any) {
	cm, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	pods, err := r.pods.Pods(cm.Namespace).List(labels.Everything())
	if err != nil {
		return // a list from memory does not fail
	}
	for _, pod := range pods {
		r.podChanged(pod)
	}
}

func (r *Runner) work(ctx context.Context) {
	for {
		name, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		err := r.handle(ctx, name)
		r.mu.Lock()
		r.failed[name] = err
		r.mu.Unlock()
		if err == nil {
			r.queue.Forget(name)
		} else {
			r.queue.AddRateLimited(name)
		}
		r.queue.Done(name)
	}
}

// handle brings the process of one pod where it should be. The simulated nodes let a pod go
// as soon as it is asked to: what keeps it until its process has ended is the finalizer.
func (r *Runner) handle(ctx context.Context, name types.NamespacedName) error {
	pod, err := r.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil && !apierrs.IsNotFound(err) {
		return err
	}
	wanted := err == nil && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
	p := r.of(name)
	if p != nil && (!wanted || p.uid != pod.UID) {
		r.stop(name)
		p = nil
	}
	if !wanted {
		return r.release(ctx, pod)
	}
	if err := r.keep(ctx, pod); err != nil {
		return err
	}
	if p == nil {
		if p, err = r.prepare(ctx, pod); err != nil {
			return err
		}
	}
	return r.run(ctx, pod, p)
}

// run gives a pod's process its files, and starts one if there is none.
func (r *Runner) run(ctx context.Context, pod *corev1.Pod, p *running) error {
	if err := r.mount(pod, p); err != nil {
		return err
	}
	switch {
	case p.Process == nil:
		return r.start(pod, p)
	case p.Alive() == nil, r.isLost(p):
		return nil
	case mayEnd(pod):
		return r.report(ctx, pod, p.Process)
	}
	return r.start(pod, p)
}

// prepare makes the surroundings of a pod's processes.
func (r *Runner) prepare(ctx context.Context, pod *corev1.Pod) (*running, error) {
	r.mu.Lock()
	n := r.addresses
	r.addresses++
	r.mu.Unlock()
	host, target := r.network.address(n)
	p := &running{
		uid: pod.UID, host: host, target: target,
		dir: filepath.Join(r.dir, pod.Namespace, pod.Name+"-"+string(pod.UID)),
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	return p, r.credentials(ctx, pod, p.dir)
}

// start starts a process of a pod, and sees to it that another follows.
func (r *Runner) start(pod *corev1.Pod, last *running) error {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	program, err := r.program(pod, last)
	if err != nil {
		return err
	}
	if r.Edit != nil {
		r.Edit(pod, &program)
	}
	process, err := harness.StartProcess(program)
	if err != nil {
		return err
	}
	next := *last
	next.Process, next.starts, next.killed = process, last.starts+1, false
	r.mu.Lock()
	r.running[name] = &next
	r.mu.Unlock()
	go func() {
		<-process.Ended()
		if mayEnd(pod) {
			r.queue.Add(name)
			return
		}
		r.mu.Lock()
		if r.running[name] == &next && !next.killed {
			r.crashed = append(r.crashed, name.String()+": "+process.Tail(1))
		}
		r.mu.Unlock()
		r.queue.AddAfter(name, again)
	}()
	return nil
}

// stop ends the process of a pod that goes.
func (r *Runner) stop(name types.NamespacedName) {
	p := r.of(name)
	r.mu.Lock()
	delete(r.running, name)
	r.mu.Unlock()
	_ = p.Stop(grace) // how it ends is not what is tested here
}
