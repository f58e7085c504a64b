package toolhive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// calm is how long nobody may write anything: both operators have looked again by then.
const calm = 30 * time.Second

// TestBothOperators lets ToolHive's operator and our manager see to the same servers. It is nobody's wish, but happens
// during a switch: none may undo what the other does, for ever.
func TestBothOperators(t *testing.T) {
	needs(t, envOperator, envCRDs)
	w := newPlane(t)
	w.makeServers(read(t, "configurations.yaml"))
	operator := w.startOperator()
	w.startManager("toolhive")
	before, changed := map[string]*unstructured.Unstructured{}, map[string]int{}
	began, since, differences := time.Now(), time.Now(), map[string]string{}
	var writes [20]int // in each half minute
	t.Cleanup(func() {
		t.Logf("writes in each half minute: %v; most often of: %s", writes, strings.Join(mostOf(changed, 10), ", "))
		for key, difference := range differences {
			t.Errorf("%s was written %d times, the last time (-before +after):\n%s", key, changed[key], difference)
		}
	})
	err := harness.Await(w.Context(), "nobody writes any more", 6*time.Minute, func(context.Context) error {
		if err := errors.Join(operator.Alive(), w.manager.Alive()); err != nil {
			return err
		}
		now, err := w.objects()
		if err != nil {
			return err
		}
		for key, obj := range now {
			was := before[key]
			if was != nil && was.GetResourceVersion() == obj.GetResourceVersion() {
				continue
			}
			since = time.Now()
			writes[int(since.Sub(began)/(30*time.Second))]++
			if changed[key]++; changed[key] > often {
				differences[key] = cmp.Diff(content(was), content(obj))
			}
		}
		before = now
		if left := calm - time.Since(since); left > 0 {
			time.Sleep(time.Second)
			return fmt.Errorf("the last write was %s ago", time.Since(since).Round(time.Second))
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// mostOf are the keys with the highest numbers, with those.
func mostOf(numbers map[string]int, n int) (most []string) {
	keys := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return numbers[b] - numbers[a] })
	for _, key := range keys[:min(n, len(keys))] {
		most = append(most, fmt.Sprintf("%s (%d)", key, numbers[key]))
	}
	return most
}

// often: an object that is written so many times is written for ever.
const often = 40

// content is what people and operators write of an object.
func content(obj *unstructured.Unstructured) map[string]any {
	out := obj.DeepCopy()
	out.SetManagedFields(nil)
	out.SetResourceVersion("")
	out.SetGeneration(0)
	return out.Object
}

// objects are the servers, and what belongs to one.
func (w *world) objects() (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for _, kind := range append([]string{v1beta1.GroupVersion.String() + " MCPServer"}, madeKinds...) {
		version, kind, _ := strings.Cut(kind, " ")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		if err := w.Client.List(w.Context(), list, client.InNamespace(w.ns)); err != nil {
			return nil, err
		}
		for _, obj := range list.Items {
			all[kind+" "+obj.GetName()] = &obj
		}
	}
	return all, nil
}

// TestOperatorsTakeTurns is a user who switches to our manager and back, with a server in use.
func TestOperatorsTakeTurns(t *testing.T) {
	needs(t, envOperator, envCRDs, envProgram)
	const name = "used"
	w := newPlane(t)
	t.Cleanup(w.show)
	w.runPods()
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.create(name, v1beta1.TransportStreamableHTTP, nil)
	operator := w.startOperator()
	w.awaitTurn(name, operator)
	pods, use := w.proxyPods(name), w.use(name)

	stop := func(p *harness.Process) {
		if err := p.Stop(time.Minute); err != nil {
			t.Error(err)
		}
	}
	stop(operator)
	w.startManager("toolhive")
	w.awaitTurn(name, w.manager)
	pods = use.check("ToolHive to Phasegate", pods)
	w.restart(name, w.manager)
	pods = use.check("a restart by Phasegate", pods)

	stop(w.manager)
	operator = w.startOperator()
	w.awaitTurn(name, operator)
	pods = use.check("Phasegate to ToolHive", pods)
	w.restart(name, operator)
	use.check("a restart by ToolHive", pods)
	use.end()

	srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	if err := w.Client.Delete(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(w, "the server is gone", func() error {
		err := w.Client.Get(t.Context(), w.key(name), srv)
		if apierrs.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("finalizers %v", srv.Finalizers))
	})
}

// restart asks for new pods as `kubectl phasegate restart` and ToolHive's users do, and waits for them.
func (w *world) restart(name string, turn *harness.Process) {
	w.Helper()
	before := w.proxyPods(name)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.AnnotationRestartedAt, time.Now().UTC().Format(time.RFC3339))
	srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	if err := w.Client.Patch(w.Context(), srv, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.Fatal(err)
	}
	harness.Eventually(w, "pods after a restart", func() error {
		now := w.proxyPods(name)
		if len(now) == 0 || slices.ContainsFunc(now, func(pod string) bool { return slices.Contains(before, pod) }) {
			return fmt.Errorf("pods %v, before %v", now, before)
		}
		return nil
	})
	w.awaitTurn(name, turn)
}

// awaitTurn waits until a server is Ready in the eyes of whose turn it is, and its proxy serves.
func (w *world) awaitTurn(name string, turn *harness.Process) {
	w.Helper()
	var since time.Time
	harness.Eventually(w, name+" Ready", func() error {
		if err := turn.Alive(); err != nil {
			return err
		}
		srv := &v1beta1.MCPServer{}
		if err := w.Client.Get(w.Context(), w.key(name), srv); err != nil {
			return err
		}
		if srv.Status.Phase != "Ready" || srv.Status.ObservedGeneration != srv.Generation {
			since = time.Time{}
			return fmt.Errorf("phase %q: %s", srv.Status.Phase, srv.Status.Message)
		}
		if since.IsZero() {
			since = time.Now()
		}
		if left := quiet - time.Since(since); left > 0 {
			time.Sleep(left) // both look again by then, and would write what they miss
			return errors.New("not Ready for long")
		}
		return nil
	})
	w.proxy(name)
}

// proxyPods are the pods of the proxy of a server that nobody ends.
func (w *world) proxyPods(name string) (names []string) {
	w.Helper()
	list := &corev1.PodList{}
	if err := w.Client.List(w.Context(), list, client.InNamespace(w.ns), client.MatchingLabels(v1beta1.ProxyLabels(name))); err != nil {
		w.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// user calls a server again and again.
type user struct {
	w    *world
	name string
	end  func()
	mu   sync.Mutex
	good int
	// outages are runs of calls that failed one after the other.
	outages []string
	failing bool
}

func (w *world) use(name string) *user {
	ctx, cancel := context.WithCancel(w.Context())
	u := &user{w: w, name: name}
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			err := u.call(ctx)
			if ctx.Err() == nil {
				u.note(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	u.end = func() { cancel(); work.Wait() }
	w.Cleanup(u.end)
	return u
}

// call is a session by a pod that is Ready, as a Service chooses it.
func (u *user) call(ctx context.Context) error {
	list := &corev1.PodList{}
	if err := u.w.Client.List(ctx, list, client.InNamespace(u.w.ns), client.MatchingLabels(v1beta1.ProxyLabels(u.name))); err != nil {
		return err
	}
	for _, pod := range list.Items {
		if !pod.DeletionTimestamp.IsZero() || !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			continue
		}
		address := "http://" + u.w.pods.Host(client.ObjectKeyFromObject(&pod)) + ":8080"
		session, err := u.w.session(address, "")
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		defer func() { _ = session.Close() }() // what is tested was seen
		if got, err := u.w.call(session, "echo", map[string]any{"text": "hello"}); got != "hello" || err != nil {
			return fmt.Errorf("pod %s: %q, %w", pod.Name, got, err)
		}
		return nil
	}
	return errors.New("no pod is ready")
}

func (u *user) note(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil:
		u.good++
	case !u.failing:
		u.outages = append(u.outages, time.Now().Format(time.TimeOnly)+" "+err.Error())
	}
	u.failing = err != nil
}

// check allows one outage for each pod that was replaced, and none else, and answers the pods that there are.
func (u *user) check(what string, before []string) (after []string) {
	u.w.Helper()
	after = u.w.proxyPods(u.name)
	u.mu.Lock()
	defer u.mu.Unlock()
	replaced := 0
	for _, pod := range before {
		if !slices.Contains(after, pod) {
			replaced++
		}
	}
	u.w.Logf("%s: %d calls answered, %d outages, %d pods replaced", what, u.good, len(u.outages), replaced)
	if u.good == 0 || u.failing || len(u.outages) > replaced {
		u.w.Errorf("%s: outages:\n%s", what, strings.Join(u.outages, "\n"))
	}
	u.good, u.outages = 0, nil
	return after
}
