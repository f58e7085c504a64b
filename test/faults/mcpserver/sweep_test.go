// Package mcpserver_test sweeps faults over every write of the MCPServer controller:
// a crash right before it, a crash right after it, and a conflict.
//
//	FAULTS=all go test ./test/faults/mcpserver   # all faults; else a part in seconds
package mcpserver_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/faults"
)

// everything is set by `make faults`.
var everything = os.Getenv("FAULTS") == "all"

// sweep is a fault that comes at the first, second, … write.
type sweep struct {
	fault faults.Fault
	// short ones are part of `make test-all`.
	short bool
}

var sweeps = map[string]sweep{
	"a crash before": {fault: faults.CrashBefore},
	"a crash after":  {fault: faults.CrashAfter, short: true},
	"a lost answer":  {fault: faults.Lose},
	"a conflict":     {fault: faults.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)},
	"an error":       {fault: faults.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)},
}

// strands is how many servers a sweep has, each of which takes a part of the writes:
// most of the time is waiting for pods.
const strands = 4

// each tries the fault at the first, second, … write until one says that it did not
// come any more. It makes a world for each strand; of those, every step-th is left
// in when there is little time.
func (s sweep) each(t *testing.T, step int, begin func(*world) attempt) {
	t.Helper()
	for strand := range strands {
		if !everything && strand%step != 0 {
			continue
		}
		t.Run(fmt.Sprintf("%d of %d", strand+1, strands), func(t *testing.T) {
			t.Parallel()
			try := begin(newWorld(t))
			came := true
			for n := strand + 1; came; n += strands {
				at := func() *faults.Transport {
					return faults.New(&faults.Rule{When: faults.Write, Nth: n, Do: s.fault})
				}
				came = try(n, at)
				if t.Failed() {
					t.Fatalf("failed with the fault at write %d", n)
				}
				if !came && n <= strands {
					t.Fatalf("there is no write %d: the sweep tests next to nothing", n)
				}
			}
		})
	}
}

// attempt disturbs the n-th write and tells whether there was one. at makes the
// Transport that does it, for one process or for several, one after the other.
type attempt func(n int, at func() *faults.Transport) bool

// A request is acted on exactly once, whatever happens at whichever write.
func TestRestartIsActedOnOnce(t *testing.T) {
	t.Parallel()
	for name, s := range sweeps {
		for _, strategy := range []string{v1beta1.StrategyRolling, v1beta1.StrategyImmediate} {
			if !everything && (!s.short || strategy != v1beta1.StrategyImmediate) {
				continue
			}
			t.Run(name+", "+strategy, func(t *testing.T) {
				s.each(t, 1, func(w *world) attempt { return w.restarts("srv", strategy) })
			})
		}
	}
}

func (w *world) restarts(name, strategy string) attempt {
	w.create(name)
	w.drive(faults.New(), name, ready)
	asked := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	return func(_ int, at func() *faults.Transport) bool {
		asked = asked.Add(time.Hour)
		token := asked.Format(time.RFC3339)
		before := w.workload(name)
		w.askRestart(name, token, strategy)
		came := w.survive(at(), name, restarted(token))
		if diff := cmp.Diff(before.once(token), w.workload(name)); diff != "" {
			w.t.Errorf("after the restart (-want +got):\n%s", diff)
		}
		w.quiet(name)
		return came
	}
}

func (w *world) askRestart(name, token, strategy string) {
	w.t.Helper()
	srv := w.get(name)
	base := srv.DeepCopy()
	if srv.Annotations == nil {
		srv.Annotations = map[string]string{}
	}
	srv.Annotations[v1beta1.AnnotationRestartedAt] = token
	srv.Annotations[v1beta1.AnnotationRestartStrategy] = strategy
	if err := w.Client.Patch(w.t.Context(), srv, client.MergeFrom(base)); err != nil {
		w.t.Fatal(err)
	}
}

func restarted(token string) func(*server) error {
	return func(srv *server) error {
		if err := ready(srv); err != nil {
			return err
		}
		if got := srv.Annotations[v1beta1.AnnotationLastProcessedRestart]; got != token {
			return fmt.Errorf("the last restart that was acted on is %q, want %q", got, token)
		}
		return nil
	}
}

// Whatever happens on the way, a server ends up Ready with everything it needs made
// once, and leaves nothing behind.
func TestComesAndGoesWhole(t *testing.T) {
	t.Parallel()
	for name, s := range sweeps {
		if everything || s.short {
			t.Run(name, func(t *testing.T) { s.each(t, 2, (*world).lives) })
		}
	}
}

func (w *world) lives() attempt {
	return func(n int, at func() *faults.Transport) bool {
		name := fmt.Sprintf("srv-%d", n)
		w.create(name)
		came := w.survive(at(), name, ready)
		if diff := cmp.Diff(allChildren(name), w.children(name)); diff != "" {
			w.t.Errorf("what was made (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(workload{1, 1, 1, 1, "", ""}, w.workload(name)); diff != "" {
			w.t.Errorf("made, and changed again (-want +got):\n%s", diff)
		}
		w.quiet(name)

		if err := w.Client.Delete(w.t.Context(), w.get(name)); err != nil {
			w.t.Fatal(err)
		}
		came = w.survive(at(), name, gone) || came
		if left := w.children(name); len(left) > 0 {
			w.t.Errorf("left behind: %q, want nothing", left)
		}
		w.awaitNoPods(name)
		return came
	}
}

func eachItem(list client.ObjectList, visit func(client.Object)) error {
	return meta.EachListItem(list, func(obj runtime.Object) error {
		visit(obj.(client.Object))
		return nil
	})
}
