package e2e

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// heldFor is how long a webhook takes for a write, and heldAtMost its timeout.
	heldFor, heldAtMost = 3 * time.Second, 5 * time.Second
)

// writeEvery is the distance of writes, in turn: those that are far apart land when v1 seems to be still.
var writeEvery = []time.Duration{1300 * time.Millisecond, 60 * time.Millisecond}

// lateKinds are two kinds of v1 and how many objects each has: one is listed under the lock, the other watched.
var lateKinds = []lateKind{{"GlobalNetworkSet", "globalnetworksets", 40}, {"NetworkSet", "networksets", 400}}

type lateKind struct {
	kind, plural string
	objects      int
}

// longDrain lets kinds of 300 objects and more be watched, as they are in a real cluster.
var longDrain = inStep("Migrating", "BlockV1Writes", func(s *v1alpha1.Step) { s.With = map[string]any{"settle": "500ms"} })

// A write passes the fence just before the lock, waits in a validating webhook, and lands when v1 is closed. None that was
// accepted is lost: nothing is read as final before the longest timeout of a webhook is over.
func TestWebhookDelaysWrites(t *testing.T) {
	rounds := 1
	if os.Getenv("FAULTS") == "all" {
		rounds = 20
	}
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	w := pristine(t)
	var old []*lateWrite
	for _, of := range lateKinds {
		for i := range of.objects {
			old = append(old, lateSet(of.kind, fmt.Sprintf("old-%d", i)))
		}
	}
	w.eachWrite(old, func(one *lateWrite) { one.err = w.Client.Create(context.Background(), one.object(v1)) })
	for _, one := range old {
		w.do(t, one.err)
	}
	w.manager(t, "--phases-dir", gated(t, longDrain))
	through := []client.Client{w.Client}
	for servers := 1; servers <= 2; servers++ {
		if servers == 2 {
			through = append(through, w.moreServers(t, serverKind{})[1].through)
		}
		lost, accepted, landedLate := 0, 0, 0
		for round := range rounds {
			of := lateKinds[round/len(writeEvery)%len(lateKinds)]
			in, late, gone := w.delayedRound(t, of, round, through)
			lost, accepted, landedLate = lost+gone, accepted+in, landedLate+late
			t.Logf("%d API servers, round %d, %d %ss, a write each %s: %d writes accepted, %d of them after the lock; %d are not in v3", servers, round, of.objects, of.kind, writeEvery[round%len(writeEvery)], in, late, gone)
		}
		t.Logf("%d API servers: %d rounds, %d writes accepted, %d of them after the lock: %d lost", servers, rounds, accepted, landedLate, lost)
		if lost > 0 {
			t.Errorf("%d API servers: %d of %d writes that v1 accepted are not in v3, when both sides have been compared", servers, lost, accepted)
		}
		if landedLate == 0 {
			t.Errorf("%d API servers: no write was under way at the lock: this shows nothing", servers)
		}
	}
	w.eachWrite(old, func(one *lateWrite) { _ = w.Client.Delete(context.Background(), one.object(v1)) })
}

// delayedRound writes v1 through the whole lock, up to where both sides have been compared. late were answered after the lock.
func (w *world) delayedRound(t *testing.T, of lateKind, round int, through []client.Client) (accepted, late, lost int) {
	t.Helper()
	w.start(t, setup.MigrationName, "begin")
	w.awaitGate(t, setup.MigrationName, "begin")
	end := w.delay(t, of, through)
	stop, first, ended := make(chan struct{}), make(chan struct{}), make(chan []*lateWrite)
	go func() { ended <- w.writeOn(of, round, through, sync.OnceFunc(func() { close(first) }), stop) }()
	<-first // so that there are always some under way
	w.goOn(t, "verified")
	dm := w.awaitStatus(t, setup.MigrationName, "locked", func(dm *migrationv1.DatastoreMigration) bool { return dm.Status.Lock != nil })
	locked := dm.Status.DatastoreLockedAt.Time.Add(1200 * time.Millisecond) // as the status has it: a second and the grace at most too early
	w.awaitGate(t, setup.MigrationName, "verified")
	close(stop)
	all := <-ended
	end()
	for _, one := range all {
		if one.err == nil {
			accepted++
			if one.answered.After(locked) {
				late++
			}
			lost += w.isLost(t, one)
		} else if !apierrs.IsForbidden(one.err) && !strings.Contains(one.err.Error(), "failed calling webhook") { // on a busy machine
			t.Errorf("%s %s: %v", one.op, one.name, one.err)
		}
	}
	w.remove(t, setup.MigrationName)
	w.eachWrite(all, func(one *lateWrite) {
		if one.op == "create" {
			_ = w.Client.Delete(context.Background(), one.object(v1))
		}
		if one.op == "delete" {
			_ = w.Client.Create(context.Background(), lateSet(one.kind, one.name).object(v1))
		}
	})
	return accepted, late, lost
}

// lateWrite is one write of v1.
type lateWrite struct {
	kind, name, op string
	mark           string // a label that it sets
	err            error
	answered       time.Time
}

func lateSet(kind, name string) *lateWrite { return &lateWrite{kind: kind, name: name, op: "create"} }

func (l *lateWrite) object(version string) *unstructured.Unstructured {
	obj := guarded(version, l.kind, l.name)
	if l.kind == "NetworkSet" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	if l.mark != "" {
		obj.SetLabels(map[string]string{guardedLabel: l.name, "mark": l.mark})
	}
	return obj
}

func (l *lateWrite) do(ctx context.Context, c client.Client) {
	switch l.op {
	case "create":
		l.err = c.Create(ctx, l.object(v1))
	case "update":
		l.err = c.Patch(ctx, lateSet(l.kind, l.name).object(v1), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"mark":%q}}}`, l.mark)))
	case "delete":
		l.err = c.Delete(ctx, l.object(v1))
	}
	l.answered = time.Now()
}

// writeOn writes a kind until stop, and returns when all is answered. No object is written twice. It tells of each answer.
func (w *world) writeOn(of lateKind, round int, through []client.Client, answered func(), stop <-chan struct{}) (all []*lateWrite) {
	tick := time.NewTicker(writeEvery[round%len(writeEvery)])
	defer tick.Stop()
	var group sync.WaitGroup
	for i, old := 0, 0; ; i++ {
		select {
		case <-stop:
			group.Wait()
			return all
		case <-tick.C:
		}
		one := lateSet(of.kind, fmt.Sprintf("new-%d-%d", round, i))
		if op := []string{"create", "update", "delete"}[i%3]; op != "create" && old < of.objects {
			one.op, one.name, one.mark = op, fmt.Sprintf("old-%d", old), fmt.Sprintf("m-%d-%d", round, i)
			old++
		}
		all = append(all, one)
		group.Go(func() {
			one.do(context.Background(), through[i%len(through)])
			answered()
		})
	}
}

// isLost is 1 where v3 does not have what was written.
func (w *world) isLost(t *testing.T, one *lateWrite) int {
	t.Helper()
	live := one.object(v3)
	err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	there := err == nil && (one.mark == "" || live.GetLabels()["mark"] == one.mark)
	if there == (one.op == "delete") {
		t.Logf("lost: %s %s %s, answered at %s", one.op, one.kind, one.name, one.answered.Format("05.000"))
		return 1
	}
	return 0
}

func (w *world) eachWrite(all []*lateWrite, do func(*lateWrite)) {
	var group sync.WaitGroup
	turns := make(chan struct{}, 50)
	for _, one := range all {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			do(one)
		})
	}
	group.Wait()
}

// delay registers a webhook that takes its time for each write of a kind of v1, and returns what ends it. It is in force at
// every API server.
func (w *world) delay(t *testing.T, of lateKind, through []client.Client) (end func()) {
	t.Helper()
	server := httptest.NewTLSServer(answer(func(*admissionv1.AdmissionRequest) (string, metav1.StatusReason) {
		time.Sleep(heldFor)
		return "", ""
	}))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := &registrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Webhooks: []registrationv1.ValidatingWebhook{{
		Name: "slow.example.com", TimeoutSeconds: new(int32(heldAtMost.Seconds())), SideEffects: new(registrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: registrationv1.WebhookClientConfig{CABundle: ca, URL: &server.URL},
		Rules: []registrationv1.RuleWithOperations{{Operations: []registrationv1.OperationType{registrationv1.OperationAll},
			Rule: registrationv1.Rule{APIGroups: []string{resources.V1Group}, APIVersions: []string{"*"}, Resources: []string{of.plural}}}},
	}}}
	w.do(t, w.Client.Create(t.Context(), config.DeepCopy()))
	end = sync.OnceFunc(func() {
		if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), config)); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	t.Cleanup(end)
	for i, c := range through {
		harness.Eventually(t, "the webhook in force", func() error {
			begun := time.Now()
			err := c.Create(t.Context(), lateSet(of.kind, fmt.Sprintf("probe-%d", i)).object(v1), client.DryRunAll)
			return nilIf(err == nil && time.Since(begun) >= heldFor)
		})
	}
	return end
}

// markInV3 is the label mark of a GlobalNetworkSet, or "gone".
func (w *world) markInV3(t *testing.T, of string) string {
	t.Helper()
	live := guarded(v3, "GlobalNetworkSet", of)
	err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live)
	if apierrs.IsNotFound(err) {
		return "gone"
	}
	w.do(t, err)
	return live.GetLabels()["mark"]
}

// heldMark is what is in the keys of the objects whose writes wait on their way to etcd.
const heldMark = "crd.projectcalico.org/globalnetworksets/held-"

// What waits between admission and etcd lands when v3 is open. It is brought to v3, where nobody has written the copy
// since; else a person sees both contents, and v1 stays until he has decided. It does not keep the migration.
func TestWritesLandAfterTheProof(t *testing.T) {
	const name = setup.MigrationName
	w := own(t, setup.Options{Objects: fixture.Demo(5, objects)})
	for _, old := range []string{"held-updated", "held-deleted", "held-both"} {
		w.do(t, w.Client.Create(t.Context(), guarded(v1, "GlobalNetworkSet", old)))
	}
	first, err := w.Server(harness.APIServer)
	w.do(t, err)
	etcd, err := first.Flag("etcd-servers")
	w.do(t, err)
	held, err := harness.HoldEtcd(etcd, heldMark)
	w.do(t, err)
	t.Cleanup(func() { w.do(t, held.Close()) })
	second := w.moreServers(t, serverKind{flags: []string{"--etcd-servers=" + held.URL}})[1]
	p := w.manager(t, "--phases-dir", gated(t), "--request-timeout=25s")
	w.start(t, name, "fenced")
	w.awaitGate(t, name, "fenced")

	label := func(c client.Client, version, of, mark string) error {
		return c.Patch(t.Context(), guarded(version, "GlobalNetworkSet", of), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"mark":%q}}}`, mark)))
	}
	writes := []func() error{
		func() error {
			return second.through.Create(t.Context(), guarded(v1, "GlobalNetworkSet", "held-created"))
		},
		func() error { return label(second.through, v1, "held-updated", "late") },
		func() error {
			return second.through.Delete(t.Context(), guarded(v1, "GlobalNetworkSet", "held-deleted"))
		},
		func() error { return label(second.through, v1, "held-both", "late") },
	}
	errs, writing := make([]error, len(writes)), sync.WaitGroup{}
	for i, write := range writes {
		writing.Go(func() {
			if err := write(); err != nil {
				errs[i] = fmt.Errorf("write %d was not accepted: %w", i, err)
			}
		})
	}
	harness.Eventually(t, "the writes to wait for etcd", func() error { return nilIf(held.Waiting() == len(writes)) })
	w.goOn(t, nowhere)
	w.await(t, name, "Converged")
	harness.Eventually(t, "v3 to be open", func() error { return label(w.Client, v3, "held-both", "v3") })
	w.awaitMessage(t, name, "watched for writes")
	p.Kill() // what is watched survives the manager
	held.Release()
	writing.Wait()
	w.do(t, errors.Join(errs...))
	w.manager(t, "--phases-dir", gated(t), "--request-timeout=5s")
	w.do(t, fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace))
	dm := w.await(t, name, "Complete")
	for of, want := range map[string]string{"held-created": "", "held-updated": "late", "held-deleted": "gone", "held-both": "v3"} {
		if got := w.markInV3(t, of); got != want {
			t.Errorf("v3 has %s with mark %q, want %q", of, got, want)
		}
	}
	const both = `metadata.labels.mark: "late" in v1, "v3" in v3`
	if list := dm.Status.Conflicts.String(); !strings.HasPrefix(list, "GlobalNetworkSet held-both: ") || !strings.Contains(list, both) || strings.Contains(list, "|") {
		t.Errorf("the status names %q, want held-both alone with both contents", list)
	}
	for reason, part := range map[string]string{"LateWrites": "GlobalNetworkSet held-created: created", "LateWritesConflict": "held-both"} {
		if said := w.awaitEvent(t, reason); !strings.Contains(said, part) {
			t.Errorf("Event %s says %q, want %q in it", reason, said, part)
		}
	}
	if said := w.said(t, "kubectl phasegate verify "+name, 1, "held-both"); !strings.Contains(said, both) {
		t.Errorf("verify does not show both contents:\n%s", said)
	}
	w.askRemoval(t, name)
	w.awaitMessage(t, name, "(written since: held-both, ")
	w.waive(t, name, "v1-changed")
	w.awaitGone(t, name)
}
