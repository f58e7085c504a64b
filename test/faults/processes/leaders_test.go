package processes

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
)

// lease is short: a take-over is waited for in every run.
const lease = 3 * time.Second

// candidate is a manager that works only while it holds the lease.
type candidate struct {
	*harness.Process
	// token is the id of its token, by which the audit log names it.
	token string
}

func (w *world) candidate(t *testing.T, name, machines string) *candidate {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	w.kubeconfig(t, path)
	return &candidate{Process: w.managerAt(t, path, electing(machines)...), token: tokenID(t, path)}
}

func electing(machines string) []string {
	return []string{"--phases-dir", machines, "--leader-elect", "--leader-elect-namespace", metav1.NamespaceDefault,
		"--leader-elect-lease-name", leaseName, "--leader-elect-lease-duration", lease.String(),
		"--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms"}
}

// replica is a candidate that is started again when it ends, as by a kubelet: where the machine is busy, it
// loses so short a lease now and then.
func (w *world) replica(t *testing.T, machines string) {
	t.Helper()
	p := w.manager(t, electing(machines)...)
	over := make(chan struct{})
	t.Cleanup(func() { <-over })
	go func() {
		defer close(over)
		for {
			select {
			case <-t.Context().Done():
				p.Kill()
				return
			case <-p.Ended():
			}
			next, err := w.launch(w.KubeconfigOf(account), electing(machines)...)
			if err != nil {
				t.Errorf("start the replica again: %v", err)
				return
			}
			p = next
		}
	}()
}

func (c *candidate) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-c.PID(), s); err != nil {
		t.Fatal(err)
	}
}

// awaitHolder waits until somebody else than before holds the lease, and answers who.
func (w *world) awaitHolder(t *testing.T, before string) (holder string) {
	t.Helper()
	harness.Eventually(t, "a leader", func() error {
		l := &coordinationv1.Lease{}
		if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: leaseName}, l); err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || *l.Spec.HolderIdentity == before {
			return fmt.Errorf("the lease is %q's still", before)
		}
		holder = *l.Spec.HolderIdentity
		return nil
	})
	return holder
}

// dropLease lets the first candidate lead at once.
func (w *world) dropLease(t *testing.T) {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: leaseName}}
	if err := client.IgnoreNotFound(w.Client.Delete(t.Context(), l)); err != nil {
		t.Fatal(err)
	}
}

// A leader that is stopped beyond its lease and then goes on must not write any more:
// another one has taken over, and may have finished, or released everything, since.
func TestTwoLeaders(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "leader stopped beyond its lease", all: 20, some: 1, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		aborts, early := random.IntN(2) == 0, random.IntN(2) == 0
		t.Logf("deleted meanwhile: %t; the old leader goes on while the new one works: %t", aborts, early)
		w.dropLease(t)
		old := w.candidate(t, "old", dir)
		holder := w.awaitHolder(t, "")
		w.replica(t, dir)
		p := w.watch(t, m)
		w.start(t, nil)
		w.underTheLock(t, random)

		old.signal(t, syscall.SIGSTOP)
		stopped := time.Now()
		if aborts {
			w.remove(t)
		}
		w.awaitHolder(t, holder)
		takenOver := time.Now()
		resume := func() { old.signal(t, syscall.SIGCONT) }
		if early {
			pause(upTo(random, time.Second))
			resume()
		}
		end, there := invariants.AtGate, atGate(beforeConverged)
		if aborts {
			end, there = invariants.GivenBack, isGone
		}
		w.until(t, string(end), there)
		recovered := time.Since(stopped)
		if !early {
			resume()
		}
		awaitEnd(t, old)
		w.assertSilent(t, old, takenOver)
		w.until(t, string(end), there)
		p.check(t, end, recovered, soon)
		if !aborts {
			w.giveBack(t, m)
		}
		return recovered
	}})
}

// awaitEnd waits for the end of a leader that has lost its lease.
func awaitEnd(t *testing.T, old *candidate) {
	t.Helper()
	select {
	case <-old.Ended():
	case <-time.After(harness.Patience):
		t.Fatal("a leader that has lost its lease goes on")
	}
}

// assertSilent finds writes of a leader that had an effect when it was none any more.
func (w *world) assertSilent(t *testing.T, old *candidate, since time.Time) {
	t.Helper()
	for _, e := range w.audited(t) {
		if e.by(old.token) && e.Received.After(since) && e.writes() && e.Response.Code < 400 {
			t.Errorf("the old leader still wrote: %s %s %s at %s, answered with %d", e.Verb, strings.TrimPrefix(e.URI, "/apis/"),
				e.Object.Name, e.Received.Sub(since), e.Response.Code)
		}
	}
}
