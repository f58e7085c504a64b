package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// theirPatience is how long Calico's own controller is waited for: it drains for 10 s, and looks every 10 s.
const theirPatience = time.Minute

// controllersMade is what kube-controllers does on its own account while a migration is under way, or after it.
var controllersMade = []calico.Explanation{
	{Objects: "HostEndpoint .*-auto-hep", Why: "kube-controllers makes one for each node"},
	{Objects: "KubeControllersConfiguration .*", Path: `\.status\..*|\.metadata\.managedFields\[kube-controllers .*`, Why: "kube-controllers reports what it runs with"},
	{Objects: "IPAMBlock .*", Path: `\.spec\.(allocations|attributes|unallocated|sequenceNumber).*`, Why: "kube-controllers frees addresses that have been released for a while; which are taken is checked apart"},
	{Objects: "(IPPool|Tier) .*", Path: `\.status.*|\.metadata\.finalizers.*|\.metadata\.managedFields\[kube-controllers .*`, Why: "kube-controllers looks after pools and tiers where v3 is the datastore"},
}

// Calico's kube-controllers works through the whole migration. It is killed without notice and started again while objects
// are copied ahead, and under the lock; at the end it is started with the variable, as at a rollout.
func TestRealKubeControllers(t *testing.T) {
	r := realCalico(t, calico.IPAM, calico.KubeControllers)
	controllers := r.kubeControllers(t, "")
	held := r.allocate(t, "pod", 12)
	r.awaitControllers(t)
	before := r.seen(t)
	r.manager(t, "--phases-dir", gated(t))
	r.start(t, realMigration, "compared")
	r.awaitGate(t, realMigration, "compared")
	killed := func(when, gate, effect string) {
		t.Helper()
		r.annotate(t, realMigration, map[string]string{openGates: gatesBefore(gate)})
		r.awaitStatus(t, realMigration, when, holds(effect))
		controllers.Kill()
		controllers = r.kubeControllers(t, "")
		dm := r.awaitGate(t, realMigration, gate)
		r.do(t, controllers.Alive())
		t.Logf("killed %s, where %d objects were compared in the end", when, dm.Status.Progress.Total)
	}
	killed("while objects are copied ahead", "fenced", "v3Copies")
	killed("under the lock", "verified", "v1Lock")
	r.assertSidesAreEqual(t)
	r.assertAddresses(t, held, v3)
	r.annotate(t, realMigration, map[string]string{openGates: gatesBefore(nowhere)})
	r.await(t, realMigration, "Converged")
	r.do(t, controllers.Alive())
	controllers.Kill()
	controllers = r.kubeControllers(t, fixture.APIGroupV3)
	r.switchOver(t, realMigration)
	r.waive(t, realMigration, "v1-changed")
	r.remove(t, realMigration)
	r.do(t, controllers.Alive())
	r.assertAddresses(t, held, v3)
	found := calico.Explain(calico.Differences(before, r.seen(t)), append(slices.Clone(controllersMade), explained...))
	report(t, "kube-controllers", found.Lines)
	for _, d := range found.Unexplained {
		t.Error(d)
	}
}

func (r *realCluster) kubeControllers(t *testing.T, group string) *harness.Process {
	t.Helper()
	p, err := r.release.StartKubeControllers(t.Context(), r.Cluster, group)
	r.do(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of what kube-controllers said:\n%s", p.Tail(25))
		}
	})
	return p
}

// awaitControllers waits until kube-controllers has made what the configuration asks for.
func (r *realCluster) awaitControllers(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "kube-controllers to work", func() error {
		for _, obj := range r.list(t, mustKind(t, r.Registry, "HostEndpoint").V3GVK()) {
			if obj.GetName() == "node-2-auto-hep" {
				return nil
			}
		}
		return errors.New("there is no host endpoint of node-2")
	})
}

// tooMuch are objects with which Calico's own controller does not end: those with owners in Calico, which the garbage
// collector deletes from v3 again and again, and staged deletions, to which Calico's admission policies give types.
func tooMuch(obj *unstructured.Unstructured) bool {
	action, _, _ := unstructured.NestedString(obj.Object, "spec", "stagedAction")
	return len(obj.GetOwnerReferences()) > 0 || action == "Delete"
}

// between is why the two migrations differ, by the sort of a difference. What is not in it is a failure.
var between = []struct{ sort, why string }{
	{`.*\.annotations\.migration\.projectcalico\.org/(copied-version|barrier) .*`, "our note on a copy, until the clean-up"},
	{`HostEndpoint\.metadata\..*`, "kube-controllers, which keeps the host endpoints of its nodes only, runs beside theirs alone"},
	{`.*\.metadata\.managedFields\[.*`, "we keep the managers of v1 and add ours; theirs writes all fields as kube-controllers"},
	{`IPAMBlock\.spec\.attributes\[\](\.releasedAt)? .*`, "theirs loses the time at which an address was released"},
	{`(CalicoNodeStatus|IPPool|KubeControllersConfiguration|Tier)\.status\..* \(gone\)`, "theirs does not copy a status"},
}

// besideTheirs is one more reason for a difference that is with theirs alone.
var besideTheirs = struct{ sort, why string }{
	`IPAMBlock\.spec\.(allocations|attributes|unallocated|sequenceNumber).*`, "kube-controllers, which runs beside theirs, frees addresses that have been released for a while",
}

// whyBetween is empty where nothing is a reason for a sort of differences, of which there are so many with us.
func whyBetween(sort string, ours int) string {
	reasons := between
	if ours == 0 {
		reasons = append(slices.Clone(between), besideTheirs)
	}
	for _, b := range reasons {
		if regexp.MustCompile("^(?:" + b.sort + ")$").MatchString(sort) {
			return b.why
		}
	}
	return ""
}

// The same objects, migrated by us and by the controller that is in kube-controllers: what clients see otherwise, side by
// side, and how far it comes with objects that are too much for it. Nothing is asserted of theirs but that each difference has
// its reason.
func TestRealControl(t *testing.T) {
	calico.ForTest(t, calico.APIServer, calico.IPAM, calico.KubeControllers)
	var ours, theirs, all outcome
	t.Run("migrations", func(t *testing.T) { // it waits for the three, which run beside each other
		t.Run("ours", func(t *testing.T) { ours = ourOutcome(t, tooMuch) })
		t.Run("theirs", func(t *testing.T) { theirs = theirOutcome(t, tooMuch) })
		t.Run("theirs with all", func(t *testing.T) { all = theirOutcome(t, func(*unstructured.Unstructured) bool { return false }) })
	})
	if len(ours.counts) == 0 || len(theirs.counts) == 0 {
		t.Errorf("nothing to compare: ours %q, theirs %q", ours.said, theirs.said)
	}
	lines := []string{"ours: " + ours.said, "theirs: " + theirs.said, "theirs, with what is too much for it: " + all.said, "", "  ours theirs   all  (where they differ)"}
	sorts := maps.Clone(ours.counts)
	maps.Copy(sorts, theirs.counts)
	maps.Copy(sorts, all.counts)
	for _, sort := range sortedKeys(sorts) {
		if ours.asWith(theirs, sort) {
			continue
		}
		why := whyBetween(sort, ours.counts[sort])
		if why == "" {
			why = "UNEXPLAINED"
			t.Errorf("%s: %d times with us, %d times with theirs, without a reason", sort, ours.counts[sort], theirs.counts[sort])
		}
		lines = append(lines, fmt.Sprintf("%6d %6d %6d  %s: %s", ours.counts[sort], theirs.counts[sort], all.counts[sort], sort, why))
	}
	report(t, "control", lines)
}

// outcome is what became of a migration: how many differences of each sort there are, and how many objects of each kind
// there were before.
type outcome struct {
	said            string
	counts, objects map[string]int
}

// asWith tells whether a sort of differences is as frequent with both: as many, or each object of the kind. How many blocks
// the plugin takes for as many addresses is another number each time.
func (o outcome) asWith(other outcome, sort string) bool {
	kind, _, _ := strings.Cut(sort, ".")
	return o.counts[sort] == other.counts[sort] ||
		o.counts[sort] == o.objects[kind] && other.counts[sort] == other.objects[kind]
}

// ended takes what clients see, compared with what they saw before.
func (o *outcome) ended(before, after calico.Objects) {
	o.counts, o.objects = calico.Explain(calico.Differences(before, after), nil).Counts, map[string]int{}
	for _, obj := range before {
		o.objects[obj.GetKind()]++
	}
}

func since(begun time.Time) string { return time.Since(begun).Round(time.Millisecond).String() }

func ourOutcome(t *testing.T, left func(*unstructured.Unstructured) bool) (o outcome) {
	t.Helper()
	r := realCalicoWithout(t, left, calico.IPAM)
	r.allocate(t, "pod", allocations(t))
	before := r.seen(t)
	r.manager(t)
	begun := time.Now()
	r.do(t, r.Migrate(t.Context(), realMigration))
	r.await(t, realMigration, "Converged")
	o.said = "Converged after " + since(begun)
	r.switchOver(t, realMigration)
	o.ended(before, r.seen(t))
	return o
}

// theirOutcome lets Calico's controller migrate, and looks where it stands after theirPatience if it does not end.
func theirOutcome(t *testing.T, left func(*unstructured.Unstructured) bool) (o outcome) {
	t.Helper()
	r := realCalicoWithout(t, left, calico.IPAM, calico.KubeControllers)
	r.takeTheirCRD(t)
	r.allocate(t, "pod", allocations(t))
	r.kubeControllers(t, "")
	r.awaitControllers(t)
	before := r.seen(t)
	begun := time.Now()
	r.do(t, r.Migrate(t.Context(), setup.MigrationName))
	o.said = r.theirPhase(t, "Converged") + " after " + since(begun)
	if !strings.HasPrefix(o.said, "Converged") {
		o.said += "; given up"
	} else {
		r.do(t, fixture.SwitchComponents(t.Context(), r.Client, setup.CalicoNamespace))
		o.said += "; " + r.theirPhase(t, "Complete") + " after " + since(begun)
	}
	o.ended(before, r.seen(t))
	return o
}

// takeTheirCRD replaces the CRD of DatastoreMigrations by theirs, if that is given.
func (r *realCluster) takeTheirCRD(t *testing.T) {
	t.Helper()
	peers, err := crds.Peers()
	r.do(t, err)
	for _, crd := range peers {
		if crd.GetName() != "datastoremigrations.migration.projectcalico.org" {
			continue
		}
		live := crd.DeepCopy()
		r.do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), live))
		live.Object["spec"] = crd.Object["spec"]
		r.do(t, r.Client.Update(t.Context(), live))
	}
}

// theirPhase waits for a phase that Calico's controller shows, not for ever, and answers the phase and what it said last.
func (r *realCluster) theirPhase(t *testing.T, phase string) string {
	t.Helper()
	last := ""
	err := harness.Await(t.Context(), "Calico's controller in "+phase, theirPatience, func(ctx context.Context) error {
		dm, err := r.Migration(ctx, setup.MigrationName)
		if err != nil {
			return err
		}
		if last = dm.Status.Phase + ": " + dm.Status.Message; dm.Status.Phase != phase {
			return errors.New(last)
		}
		return nil
	})
	t.Log(err)
	return last
}
