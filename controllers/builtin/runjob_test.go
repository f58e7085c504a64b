package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/test/support/harness"
)

// release calls RunJob as the release of an effect, in the name of an object that may be gone. There is a state of it
// already, since the ledger is written before an effect is taken.
func release(t *testing.T, c client.Client, p *plan) (map[string]any, error) {
	t.Helper()
	action := builtin.Actions[*plan](builtin.Options{Client: c})["RunJob"]
	do := action.Do
	action.Do = func(ctx context.Context, s *runner.Scope[*plan]) (map[string]any, error) {
		if err := s.Save(ctx, "ledger", "written"); err != nil {
			return nil, err
		}
		s.Releases = true
		return do(ctx, s)
	}
	return runner.Once(t.Context(), c, p.DeepCopyObject().(*plan), action, params{"manifest": plainJob("restore")}, clocktesting.NewFakeClock(noon))
}

// ownedByTheState is nil once the one Job that is left belongs to the MachineState alone.
func ownedByTheState(ctx context.Context, c client.Client, p *plan) error {
	jobs := &batchv1.JobList{}
	if err := c.List(ctx, jobs, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	if len(jobs.Items) != 1 {
		return harness.Permanent(fmt.Errorf("%d Jobs are left, want 1", len(jobs.Items)))
	}
	var owners []string
	for _, owner := range jobs.Items[0].OwnerReferences {
		owners = append(owners, owner.Kind)
	}
	if diff := cmp.Diff([]string{"MachineState"}, owners); diff != "" {
		return fmt.Errorf("owners of the Job (-want +got):\n%s", diff)
	}
	return nil
}

// A release gives back what outlives the object, so its Job must, too: the garbage collector would end it together with the
// object, and what was taken would stay taken. A Job that fails is run again, since an object that is gone has nobody who
// could ask for it, and one that is deleted could never go.
func TestReleaseByAJobOutlivesTheObject(t *testing.T) {
	world, p := plansFor(t)
	if _, err := release(t, world, p); reasonOf(err) != "waits" {
		t.Fatalf("got %v, want to wait for the Job", err)
	}
	if err := world.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the garbage collector to see that the object is gone", func() error { return ownedByTheState(t.Context(), world, p) })
	now := metav1.NewTime(noon)
	p.DeletionTimestamp = &now // as the runner has an object that is gone
	ends := []struct {
		why        string
		first, how batchv1.JobConditionType
		then, next string
	}{
		{"there is another attempt, with a Job of its own: the first stays for its logs", batchv1.JobFailureTarget, batchv1.JobFailed, "JobFailed", "waits"},
		{"the same", batchv1.JobFailureTarget, batchv1.JobFailed, "JobFailed", "waits"},
		{"it is done, and stays so", batchv1.JobSuccessCriteriaMet, batchv1.JobComplete, "", ""},
	}
	for i, end := range ends {
		if err := endJobs(end.first, end.how)(t.Context(), world, p); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{end.then, end.next} {
			if _, err := release(t, world, p); reasonOf(err) != want {
				t.Errorf("Job %d has condition %s: got %v, want %q: %s", i+1, end.how, err, want, end.why)
			}
		}
	}
	if got := jobsOf(t, p); got != len(ends) {
		t.Errorf("%d Jobs, want %d: one that failed is left for its logs", got, len(ends))
	}
	state := &v1alpha1.MachineState{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MachineStateName(runner.OnceMachine, p.UID)}}
	if err := world.Delete(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := goJobs(ctx, world, p); err != nil {
		t.Errorf("the Jobs outlive the state: %v", err)
	}
}

// A release whose Job was deleted by hand runs it again, too: whatever it did, a release may be called again.
func TestReleaseByAJobThatIsDeleted(t *testing.T) {
	world, p := plansFor(t)
	for range 2 {
		if _, err := release(t, world, p); reasonOf(err) != "waits" {
			t.Fatalf("got %v, want to wait for the Job", err)
		}
		if got := jobsOf(t, p); got != 1 {
			t.Fatalf("%d Jobs, want 1", got)
		}
		deleteJobs(t, p)
	}
}

// A Job that there is no room to note is not created: it would be run once more with each try, or be asked for in vain for ever.
func TestNoJobWithoutANote(t *testing.T) {
	world, p := plansFor(t)
	action := builtin.Actions[*plan](builtin.Options{Client: world})["RunJob"]
	do := action.Do
	action.Do = func(ctx context.Context, s *runner.Scope[*plan]) (map[string]any, error) {
		full, err := json.Marshal(map[string]any{"visit": s.Object.MachineStatus().Visit(),
			"jobs": map[string]any{"other": map[string]any{"done": true, "message": strings.Repeat("x", 65300)}}})
		if err != nil {
			return nil, err
		}
		if err := s.Save(ctx, "jobs", string(full)); err != nil {
			return nil, err
		}
		return do(ctx, s)
	}
	_, err := runner.Once(t.Context(), world, p, action, params{"manifest": plainJob("one-more")}, clocktesting.NewFakeClock(noon))
	if diff := cmp.Diff("TooManyNotes", reasonOf(err)); diff != "" {
		t.Errorf("outcome %v (-want +got):\n%s", err, diff)
	}
	jobs := &batchv1.JobList{}
	if err := world.List(t.Context(), jobs, client.InNamespace(p.Namespace)); err != nil || len(jobs.Items) > 0 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
}
