package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/bench/report"
	"github.com/phasegate/phasegate/test/support/audit"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// soakEnv is for how many seconds the other clients ask in all, beside a migration from its creation to the end of the
	// clean-up: 600, or 40 in a short run.
	soakEnv = "BENCH_SOAK"
	// idlePart of that is before the migration.
	idlePart = 10
	// sampleEvery is how often the memory of kube-apiserver is looked at.
	sampleEvery = 200 * time.Millisecond
)

// The stages in which none of our steps runs.
const (
	beforeAll = "before the migration"
	noStep    = "between steps"
	afterAll  = "after the clean-up"
)

func soak() (time.Duration, error) {
	seconds, err := 600, error(nil)
	switch text := os.Getenv(soakEnv); {
	case text != "":
		if seconds, err = strconv.Atoi(text); err != nil {
			return 0, fmt.Errorf("%s: %w", soakEnv, err)
		}
	case os.Getenv(objectsEnv) != "":
		seconds = 40
	}
	return time.Duration(seconds) * time.Second, nil
}

// wholeLife measures what other clients notice of each step, from the creation of a migration to the end of its clean-up.
func wholeLife(ctx context.Context, n int) ([]report.Run, error) {
	length, err := soak()
	if err != nil {
		return nil, err
	}
	s, err := newScene(ctx, n, report.Whole)
	if err != nil {
		return nil, err
	}
	return ended(s, func() ([]report.Run, error) {
		ctx, cancel := context.WithTimeout(ctx, patience+length+time.Duration(n)*patienceEach)
		defer cancel()
		if err := createDependents(ctx, s); err != nil {
			return nil, err
		}
		received := collectSpans()
		defer received.Close()
		o, err := asInstalled(ctx, s, "--tracing-endpoint", received.URL)
		if err != nil {
			return nil, err
		}
		defer o.end()
		l := &life{}
		if err := l.watch(ctx, s, o, length); err != nil {
			return nil, err
		}
		if l.steps, err = received.steps(); err != nil {
			return nil, err
		}
		if l.calls, err = audit.Calls(s.AuditLog, "system:serviceaccount:default:"+chartAccount); err != nil {
			return nil, err
		}
		run := report.Run{Contender: report.Whole, Figures: o.figures(n), Stages: l.stages(), Late: l.late()}
		run.Figures[report.Total] = o.took.Seconds()
		return []report.Run{run}, nil
	})
}

// createDependents makes objects outside Calico that a Calico object owns.
func createDependents(ctx context.Context, s *setup.Setup) error {
	tier := &unstructured.Unstructured{}
	tier.SetAPIVersion(resources.V3Group + "/" + resources.V3Version)
	tier.SetKind("Tier")
	tier.SetName("default")
	if err := s.Client.Get(ctx, types.NamespacedName{Name: tier.GetName()}, tier); err != nil {
		return fmt.Errorf("read the owner of other objects: %w", err)
	}
	owner := metav1.OwnerReference{APIVersion: tier.GetAPIVersion(), Kind: tier.GetKind(), Name: tier.GetName(), UID: tier.GetUID()}
	for i := range report.Dependents {
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("dependent-%d", i), OwnerReferences: []metav1.OwnerReference{owner},
		}}
		if err := s.Client.Create(ctx, owned); err != nil {
			return fmt.Errorf("create an object that a Calico object owns: %w", err)
		}
	}
	return nil
}

// life is what was seen of a migration and of others beside it.
type life struct {
	answers map[string][]answer
	memory  []sample
	steps   []atWork
	calls   []audit.Call
}

// sample is the resident memory of kube-apiserver at a time, in MiB.
type sample struct {
	at  time.Time
	mib float64
}

// watch lets others ask for length, or longer if the migration takes longer, and lets it live meanwhile.
func (l *life) watch(ctx context.Context, s *setup.Setup, o *ours, length time.Duration) (err error) {
	server, err := s.Server(harness.APIServer)
	if err != nil {
		return err
	}
	began := time.Now()
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan error, 1)
	go func() { sampled <- l.sample(sampling, server.PID) }()
	l.answers, err = asking(ctx, s.Config, func(ctx context.Context) error {
		if err := pause(ctx, length/idlePart); err != nil {
			return err
		}
		if err := liveOut(ctx, s, o); err != nil {
			return fmt.Errorf("%w\n%s", err, o.manager.Tail(20))
		}
		return pause(ctx, max(spansArrive, length-time.Since(began)))
	})
	stop()
	return cmp.Or(err, <-sampled)
}

// liveOut brings a migration to its end, and deletes it: the clean-up.
func liveOut(ctx context.Context, s *setup.Setup, o *ours) error {
	if err := o.run(ctx); err != nil {
		return err
	}
	if err := fixture.SwitchComponents(ctx, s.Client, setup.CalicoNamespace); err != nil {
		return err
	}
	if _, err := s.AwaitPhase(ctx, setup.MigrationName, "Complete", patience); err != nil {
		return err
	}
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: setup.MigrationName}}
	if err := s.Client.Delete(ctx, dm); err != nil {
		return fmt.Errorf("delete the migration: %w", err)
	}
	return s.AwaitGone(ctx, dm, patience)
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(length):
		return nil
	}
}

func (l *life) sample(ctx context.Context, pid int) error {
	for ctx.Err() == nil {
		bytes, err := memoryOf(pid, "VmRSS")
		if err != nil {
			return err
		}
		l.memory = append(l.memory, sample{time.Now(), float64(bytes) / (1 << 20)})
		_ = pause(ctx, sampleEvery)
	}
	return nil
}

// stage is that of a time.
func (l *life) stage(at time.Time) string {
	switch {
	case len(l.steps) == 0 || at.Before(l.steps[0].from):
		return beforeAll
	case at.After(l.steps[len(l.steps)-1].to):
		return afterAll
	}
	for _, w := range l.steps {
		if !at.Before(w.from) && !at.After(w.to) {
			return w.stage
		}
	}
	return noStep
}

// stages are what others noticed of each step, in the order of their first runs; before and after, too.
func (l *life) stages() []report.Stage {
	all := []report.Stage{{Name: beforeAll}}
	at := map[string]int{beforeAll: 0}
	find := func(name string) *report.Stage {
		if _, has := at[name]; !has {
			at[name] = len(all)
			all = append(all, report.Stage{Name: name})
		}
		return &all[at[name]]
	}
	for _, w := range l.steps {
		find(w.stage).Seconds += w.to.Sub(w.from).Seconds()
	}
	find(noStep)
	find(afterAll)
	for _, call := range l.calls {
		find(l.stage(call.From)).Requests++
	}
	for _, m := range l.memory {
		s := find(l.stage(m.at))
		s.Memory = max(s.Memory, m.mib)
	}
	for client, answers := range l.answers {
		in := map[string][]answer{}
		for _, a := range answers {
			name := l.stage(a.at)
			in[name] = append(in[name], a)
		}
		for name, those := range in {
			s := find(name)
			if s.Felt == nil {
				s.Felt = map[string]float64{}
			}
			s.Felt[client] = percentile(those, 99)
		}
	}
	return all
}

// late are the requests of others that took longer than report.LateLimit, with what we did meanwhile.
func (l *life) late() []report.Late {
	var all []report.Late
	for client, answers := range l.answers {
		for _, a := range answers {
			if a.took <= report.LateLimit {
				continue
			}
			end := a.at.Add(a.took)
			late := report.Late{At: a.at.Sub(answers[0].at).Seconds(), Client: client, Took: a.took.Seconds() * 1000, Stage: l.stage(a.at)}
			if then := l.stage(end); then != late.Stage {
				late.Stage += " to " + then
			}
			late.Ours = meanwhile(l.calls, a.at, end)
			all = append(all, late)
		}
	}
	slices.SortFunc(all, func(a, b report.Late) int { return cmp.Compare(a.At, b.At) })
	return all
}

// meanwhile tells of the calls that were being answered in a time: how many, and the longest.
func meanwhile(calls []audit.Call, from, to time.Time) string {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c audit.Call) bool { return c.To.Before(from) || c.From.After(to) })
	if len(calls) == 0 {
		return "none"
	}
	c := slices.MaxFunc(calls, func(a, b audit.Call) int { return cmp.Compare(a.To.Sub(a.From), b.To.Sub(b.From)) })
	return fmt.Sprintf("%d, the longest %s, %.0f ms", len(calls), c, c.To.Sub(c.From).Seconds()*1000)
}

// Each answer and each of our requests is counted where it began, and a late one names what was at work until its end.
func TestStages(t *testing.T) {
	began := time.Unix(100, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	l := &life{
		steps:   []atWork{{"Plan", at(1000), at(2000)}, {"CopyResources", at(2100), at(3000)}, {"Plan", at(3000), at(3500)}},
		answers: map[string][]answer{report.Reader: {{at(0), 5 * time.Millisecond}, {at(1950), 200 * time.Millisecond}, {at(2500), 20 * time.Millisecond}, {at(3600), 4 * time.Millisecond}}},
		calls: []audit.Call{
			{Verb: "list", Resource: "tiers", From: at(1900), To: at(2090)}, {Verb: "create", Resource: "tiers", Name: "a", From: at(2100), To: at(2110)},
			{Verb: "create", Resource: "tiers", Name: "b", From: at(2900), To: at(2910)},
		},
		memory: []sample{{at(500), 300}, {at(2200), 410}, {at(2400), 400}, {at(9000), 500}},
	}
	felt := func(ms float64) map[string]float64 { return map[string]float64{report.Reader: ms} }
	want := []report.Stage{
		{Name: beforeAll, Felt: felt(5), Memory: 300},
		{Name: "Plan", Seconds: 1.5, Requests: 1, Felt: felt(200)},
		{Name: "CopyResources", Seconds: 0.9, Requests: 2, Felt: felt(20), Memory: 410},
		{Name: noStep},
		{Name: afterAll, Felt: felt(4), Memory: 500},
	}
	if diff := gocmp.Diff(want, l.stages()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantLate := []report.Late{{At: 1.95, Client: report.Reader, Took: 200, Stage: "Plan to CopyResources", Ours: "2, the longest list tiers, 190 ms"}}
	if diff := gocmp.Diff(wantLate, l.late()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
