package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// pausedRollback is a machine that stops before it rolls back, until the gate of this name is open.
var pausedRollback = inPhase("RollingBack", func(_ *testing.T, p *v1alpha1.Phase) {
	p.Steps = slices.Insert(p.Steps, 0, v1alpha1.Step{
		Name: gateStep("rollback"), Wait: "1h", Message: gateMessage("rollback"),
		If: fmt.Sprintf(`!self.metadata.?annotations[?"%s"].orValue("").contains(",rollback,")`, openGates),
	})
})

// After an abort Calico's API server shows every field as before, wherever the migration stood until the point of no return:
// at each gate, in a conflict ahead and under the lock, while it rolls back, and after it has failed. Addresses can be had.
func TestRealAborts(t *testing.T) {
	r := realCalico(t, calico.IPAM)
	held := r.allocate(t, "pod", 12)
	before := r.seen(t)
	manager := r.manager(t, "--phases-dir", gated(t))
	abort := func(t *testing.T) {
		t.Helper()
		r.remove(t, setup.MigrationName)
		r.assertAsBefore(t, before, held)
	}
	for _, place := range places {
		inTurn(t, place.gate, func(t *testing.T) {
			r.start(t, setup.MigrationName, place.gate)
			r.awaitGate(t, setup.MigrationName, place.gate)
			abort(t)
		})
	}
	r.obstruct(t)
	inTurn(t, "a conflict ahead", func(t *testing.T) {
		r.start(t, setup.MigrationName, nowhere)
		if dm := r.await(t, setup.MigrationName, waiting); dm.Status.Lock != nil {
			t.Errorf("v1 is locked: %+v", dm.Status.Lock)
		}
		abort(t)
	})
	r.do(t, manager.Stop(harness.Patience))
	r.manager(t, "--phases-dir", gated(t, underTheLock, pausedRollback))
	inTurn(t, "a conflict under the lock", func(t *testing.T) {
		r.start(t, setup.MigrationName, nowhere)
		r.await(t, setup.MigrationName, waiting)
		r.awaitMessage(t, setup.MigrationName, "Datastore is locked: ")
		abort(t)
	})
	r.clear(t)
	lift := r.forbid(t)
	inTurn(t, "rolling back", func(t *testing.T) {
		r.start(t, setup.MigrationName, nowhere)
		if dm := r.awaitGate(t, setup.MigrationName, "rollback"); dm.Status.Machine.Phase != "RollingBack" || !dm.Status.Machine.IsHeld("v1Lock") {
			t.Errorf("phase %s, held %v", dm.Status.Machine.Phase, dm.Status.Machine.HeldNames())
		}
		abort(t)
	})
	inTurn(t, "failed", func(t *testing.T) {
		r.start(t, setup.MigrationName, nowhere)
		r.awaitGate(t, setup.MigrationName, "rollback")
		r.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore(nowhere) + "rollback,"})
		r.await(t, setup.MigrationName, "Failed")
		abort(t)
	})
	lift()
}

// afterAbort is why clients of Calico's API server may see a field otherwise after an abort.
var afterAbort = []calico.Explanation{
	{Path: `\.metadata\.resourceVersion`, Why: "owners were taken off and put back, and one object of a kind was a barrier"},
	{Objects: "ClusterInformation .*", Path: `\.metadata\..*`, Why: "it was the lock"},
}

func (r *realCluster) assertAsBefore(t *testing.T, before calico.Objects, held map[string]string) {
	t.Helper()
	harness.Eventually(t, "v3 served by Calico's API server", func() error {
		return nilIf(!r.served(t, mustKind(t, r.Registry, "IPAMHandle")))
	})
	found := calico.Explain(calico.Differences(before, r.seen(t)), afterAbort)
	for _, d := range found.Unexplained {
		t.Error(d)
	}
	if len(found.Lines) > 0 {
		t.Logf("after the abort: %q", found.Lines)
	}
	r.assertAddresses(t, held, v1)
}

// Processes that are killed without notice, while objects are copied and while v1 is locked.
func TestRealKills(t *testing.T) {
	r := realCalico(t, calico.IPAM)
	held := r.allocate(t, "pod", 12)
	before := r.seen(t)
	phases := gated(t)
	manager := r.manager(t, "--phases-dir", phases)
	victims := map[string]func(*testing.T){
		"Calico's API server": func(t *testing.T) { r.server.Kill(); r.do(t, r.server.Start()) },
		"kube-apiserver": func(t *testing.T) {
			server, err := r.Server(harness.APIServer)
			r.do(t, err)
			r.do(t, server.Kill(t.Context()))
			r.do(t, server.Revive())
			r.do(t, r.AwaitReady(t.Context(), server))
		},
		"the manager": func(*testing.T) { manager.Kill(); manager = r.manager(t, "--phases-dir", phases) }, // for the cases after this, too
	}
	// A gate, and what is held soon after it was opened: then something dies.
	moments := map[string]struct{ gate, holds string }{"copying ahead": {"compared", "v3Copies"}, "under the lock": {"fenced", "v1Lock"}}
	for _, victim := range sortedKeys(victims) {
		for _, moment := range sortedKeys(moments) {
			inTurn(t, victim+" "+moment, func(t *testing.T) {
				r.start(t, setup.MigrationName, moments[moment].gate)
				r.awaitGate(t, setup.MigrationName, moments[moment].gate)
				r.goOn(t, "verified")
				r.awaitStatus(t, setup.MigrationName, moment, holds(moments[moment].holds))
				victims[victim](t)
				r.awaitGate(t, setup.MigrationName, "verified")
				r.assertSidesAreEqual(t)
				r.assertAddresses(t, held, v3)
				r.remove(t, setup.MigrationName)
				r.assertAsBefore(t, before, held)
			})
		}
	}
}

// Pods come and go through the whole window, on nodes whose plugin follows calico-node. What the plugin has acknowledged is
// what v3 has in the end, for each pod once.
func TestRealAddressesThroughTheWindow(t *testing.T) {
	r := realCalico(t, calico.IPAM)
	r.manager(t)
	k := r.kubelet(t)
	r.do(t, r.Migrate(t.Context(), realMigration))
	r.await(t, realMigration, "Converged")
	r.assertAddressesInTheEnd(t, k, realMigration, "addresses")
}

// conflictFor is how long nobody resolves the conflict: longer than a kubelet waits for an address.
const conflictFor = 20 * time.Second

// The same while a conflict that is found under the lock keeps the datastore locked: who asks waits, or is refused. Once the
// conflict is resolved pods get their addresses.
func TestRealAddressesInAConflict(t *testing.T) {
	r := realCalico(t, calico.IPAM)
	r.obstruct(t)
	r.manager(t, "--phases-dir", gated(t, fastConflicts, underTheLock))
	k := r.kubelet(t)
	r.start(t, setup.MigrationName, nowhere)
	r.await(t, setup.MigrationName, waiting)
	r.awaitMessage(t, setup.MigrationName, "Datastore is locked: ")
	given, taken, failed := k.counts()
	<-time.After(conflictFor)
	nowGiven, nowTaken, nowFailed := k.counts()
	report(t, "addresses-in-conflict", []string{fmt.Sprintf("in %s of a conflict under the lock: %d addresses given, %d released, %d requests failed", conflictFor, nowGiven-given, nowTaken-taken, nowFailed-failed), k.String()})
	r.await(t, setup.MigrationName, waiting)
	removeV3(t, r.world)
	r.await(t, setup.MigrationName, "Converged")
	r.assertAddressesInTheEnd(t, k, setup.MigrationName, "addresses-after-conflict")
	if nowFailed == failed {
		t.Error("no request was refused: was the datastore locked?")
	}
}

// kubelet lets pods come and go until assertAddressesInTheEnd, and returns when some have.
func (r *realCluster) kubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{plugin: r.plugin, held: map[string]string{}, unknown: map[string]bool{}}
	k.group.Store(new(""))
	k.end = k.run(t)
	harness.Eventually(t, "pods to come and go", func() error { return k.atLeast(8) })
	return k
}

// assertAddressesInTheEnd switches the components at Converged, lets pods come and go again, and compares what the plugin has
// acknowledged with what v3 has.
func (r *realCluster) assertAddressesInTheEnd(t *testing.T, k *kubelet, name, reported string) {
	t.Helper()
	k.group.Store(new(fixture.APIGroupV3)) // what install-cni writes, when calico-node has been rolled
	r.switchOver(t, name)
	k.mark()
	harness.Eventually(t, "pods to come and go again", func() error { return k.atLeast(8) })
	k.end()

	held, unknown := k.result()
	stored := r.assigned(t, mustKind(t, r.Registry, "IPAMBlock"), v3)
	owner := map[string]string{}
	for pod, addresses := range stored {
		if _, ours := held[pod]; !ours && !unknown[pod] {
			t.Errorf("%s has %v, which were released or never acknowledged", pod, addresses)
		}
		for _, address := range addresses {
			if other, twice := owner[address]; twice {
				t.Errorf("%s is given to %s and %s", address, other, pod)
			}
			owner[address] = pod
		}
	}
	for pod, address := range held {
		if diff := cmp.Diff([]string{address}, stored[pod]); diff != "" {
			t.Errorf("%s (-acknowledged +stored):\n%s", pod, diff)
		}
	}
	report(t, reported, []string{k.String(), fmt.Sprintf("%d addresses are held in the end, of %d pods nobody knows", len(held), len(unknown))})
}
