package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/phasegate/phasegate/test/peers/calico"
)

// kubelet plays a node on which pods come and go without a pause: of three that come the oldest goes.
type kubelet struct {
	plugin calico.Plugin
	// group is calico_api_group of the configuration at this moment.
	group atomic.Pointer[string]
	// end waits for the last answer; nothing is asked afterwards.
	end func()

	mu sync.Mutex
	// held are acknowledged addresses that nobody has asked to release; order are their pods, the oldest first.
	held  map[string]string
	order []calico.Pod
	// unknown are pods of which a request has failed: nobody knows what became of it.
	unknown                       map[string]bool
	given, taken, failed, success int
	failure                       error
}

// run lasts until end is called, which waits for the last answer.
func (k *kubelet) run(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			k.come(calico.Pod{Name: fmt.Sprintf("window-%04d", i), Node: fmt.Sprintf("node-%d", i%3)})
			if i%3 == 2 {
				k.goes()
			}
		}
	}()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func (k *kubelet) come(pod calico.Pod) {
	address, err := k.plugin.Add(context.Background(), pod, *k.group.Load())
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.unknown[pod.Name] = true
		k.failed, k.failure = k.failed+1, err
		return
	}
	k.held[pod.Name], k.order = address, append(k.order, pod)
	k.given, k.success = k.given+1, k.success+1
}

func (k *kubelet) goes() {
	k.mu.Lock()
	if len(k.order) == 0 {
		k.mu.Unlock()
		return
	}
	pod := k.order[0]
	k.mu.Unlock()
	err := k.plugin.Del(context.Background(), pod, *k.group.Load())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = k.order[1:]
	delete(k.held, pod.Name)
	if err != nil {
		k.unknown[pod.Name] = true
		k.failed, k.failure = k.failed+1, err
		return
	}
	k.taken, k.success = k.taken+1, k.success+1
}

// counts are how many addresses were assigned and released, and how many requests have failed.
func (k *kubelet) counts() (given, taken, failed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.given, k.taken, k.failed
}

// mark begins to count for atLeast anew.
func (k *kubelet) mark() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.success = 0
}

func (k *kubelet) atLeast(n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.success < n {
		return fmt.Errorf("%d requests have succeeded (%w)", k.success, k.failure)
	}
	return nil
}

func (k *kubelet) result() (held map[string]string, unknown map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.held), maps.Clone(k.unknown)
}

func (k *kubelet) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("%d addresses given, %d released, %d requests failed, the last with %v", k.given, k.taken, k.failed, k.failure)
}
