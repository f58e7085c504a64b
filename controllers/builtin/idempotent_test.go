package builtin_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

type params = fsm.Params

// own names the object itself.
var own = params{"apiVersion": "builtin.phasegate.dev/v1", "kind": "Plan", "name": "plan"}

// and is all of some parameters.
func and(some ...params) params {
	all := params{}
	for _, one := range some {
		maps.Copy(all, one)
	}
	return all
}

// plainJob runs one Pod to its end.
func plainJob(name string) map[string]any {
	return content("batch/v1", "Job", name, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "restore", "image": "restore:1"}},
	}}}})
}

// endJobs plays the Job controller: all Jobs of a plan that run end.
func endJobs(conditions ...batchv1.JobConditionType) func(context.Context, client.Client, *plan) error {
	return func(ctx context.Context, c client.Client, p *plan) error {
		jobs := &batchv1.JobList{}
		if err := c.List(ctx, jobs, client.InNamespace(p.Namespace)); err != nil {
			return err
		}
		for i := range jobs.Items {
			job := &jobs.Items[i]
			if len(job.Status.Conditions) > 0 {
				continue
			}
			before := job.DeepCopy() // the garbage collector may write the Job meanwhile
			at := metav1.NewTime(noon)
			job.Status.StartTime = &at
			for _, kind := range conditions {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
					Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too often", LastProbeTime: at, LastTransitionTime: at})
			}
			if conditions[0] == batchv1.JobSuccessCriteriaMet {
				job.Status.Succeeded, job.Status.CompletionTime = 1, &at
			}
			if err := c.Status().Patch(ctx, job, client.MergeFrom(before)); err != nil {
				return err
			}
		}
		return nil
	}
}

// slowFinalizer is on what does not go at once.
const slowFinalizer = "builtin.phasegate.dev/slow"

// withConfigMaps makes a plan that made ConfigMaps in an earlier phase.
func withConfigMaps(names ...string) func(context.Context, client.Client) (*plan, error) {
	return func(ctx context.Context, c client.Client) (*plan, error) {
		p, err := newPlan(ctx, c)
		if err != nil {
			return nil, err
		}
		yes := true
		for _, name := range names {
			cm := somebodys(p.Namespace, name)
			cm.Labels = map[string]string{builtin.LabelOwner: string(p.UID)}
			cm.Finalizers = []string{slowFinalizer}
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: planKind.GroupVersion().String(), Kind: planKind.Kind, Name: p.Name, UID: p.UID, Controller: &yes}}
			if err := c.Create(ctx, cm); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
}

// letGo plays the controller that keeps deleted ConfigMaps, and awaits the garbage collector.
func letGo(ctx context.Context, c client.Client, p *plan) error {
	list := &corev1.ConfigMapList{}
	if err := c.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		if cm := &list.Items[i]; cm.DeletionTimestamp != nil {
			err := c.Patch(ctx, cm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// become plays the controller of a Plan that an action waits for.
func become(ctx context.Context, c client.Client, p *plan) error {
	obj := &plan{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), obj); err != nil {
		return err
	}
	obj.Status.Conditions = []metav1.Condition{{Type: "Filled", Status: metav1.ConditionTrue, Reason: "Full", LastTransitionTime: metav1.NewTime(noon)}}
	return c.Status().Update(ctx, obj)
}

// patchedConfigMap is one that a Patch with restore: true of the plan has changed.
func patchedConfigMap(ctx context.Context, c client.Client) (*plan, error) {
	p, err := newPlan(ctx, c)
	if err != nil {
		return nil, err
	}
	cm := somebodys(p.Namespace, "made")
	cm.Data = map[string]string{"key": "ours"}
	if err := c.Create(ctx, cm); err != nil {
		return nil, err
	}
	cm.Annotations = map[string]string{builtin.AnnotationRestore + string(p.UID): fmt.Sprintf(`{"uid":%q,"fields":[{"path":["data","key"],"found":"theirs","set":"ours"}]}`, cm.UID)}
	return p, c.Update(ctx, cm)
}

// withJob makes a plan whose Job runs.
func withJob(ctx context.Context, c client.Client) (*plan, error) {
	p, err := newPlan(ctx, c)
	if err != nil {
		return nil, err
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "restore-1234567890",
		Labels:          map[string]string{builtin.LabelOwner: string(p.UID), builtin.LabelRun: "restore"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: planKind.GroupVersion().String(), Kind: planKind.Kind, Name: p.Name, UID: p.UID}}}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "restore", Image: "restore:1"}}}
	return p, c.Create(ctx, job)
}

// startJob lets RunJob start one, which then is waited for.
func startJob(t *testing.T, c client.Client, p *plan, name string) {
	t.Helper()
	if _, err := act(t, c, "RunJob", p, params{"manifest": plainJob(name)}); reasonOf(err) != "waits" {
		t.Fatalf("got %v, want to wait for the Job", err)
	}
}

// goJobs awaits the garbage collector.
func goJobs(ctx context.Context, c client.Client, p *plan) error {
	return harness.Await(ctx, "the Jobs to be gone", time.Minute, func(ctx context.Context) error {
		jobs := &batchv1.JobList{}
		if err := c.List(ctx, jobs, client.InNamespace(p.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) > 0 {
			return fmt.Errorf("%d Jobs are there", len(jobs.Items))
		}
		return nil
	})
}

func fixed(with params) func(*plan) params { return func(*plan) params { return with } }

// Each action twice, and with a crash before and after each of its writes.
func TestActionsAreIdempotent(t *testing.T) {
	world := shared.Cluster(t).Client
	asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"key":"secret"}`))
	}))
	defer asked.Close()
	host, err := url.Parse(asked.URL)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		action    string
		setup     func(context.Context, client.Client) (*plan, error)
		with      func(*plan) params
		meanwhile func(context.Context, client.Client, *plan) error
		writes    []string
	}{
		"apply": {action: "Apply", with: fixed(params{"manifest": configMap("made", "key", "value")}), writes: []string{"apply ConfigMap"}},
		"apply what is there": {action: "Apply", setup: withConfigMaps("made"),
			with: fixed(params{"manifest": configMap("made", "other", "value")}), writes: []string{"apply ConfigMap"}},
		"apply a cluster-scoped object": {action: "Apply", with: func(p *plan) params {
			return params{"manifest": content(siteKind.GroupVersion().String(), siteKind.Kind, p.Namespace, nil)}
		}, writes: []string{"apply Site"}},
		"patch": {action: "Patch", setup: withConfigMaps("made"), with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made",
			"patch": map[string]any{"data": map[string]any{"key": nil, "more": "yes"}}}), writes: []string{"patch ConfigMap"}},
		"patch the object itself": {action: "Patch", with: fixed(and(own, params{"patch": map[string]any{"spec": map[string]any{"size": 2.0}}})),
			writes: []string{"patch Plan"}},
		"undo of a patch": {action: "Patch", setup: withConfigMaps("made"), with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made",
			"only":  map[string]any{"data": map[string]any{"key": "theirs"}},
			"patch": map[string]any{"data": map[string]any{"key": "ours"}}}), writes: []string{"patch ConfigMap"}},
		"patch that is put back": {action: "Patch", setup: withConfigMaps("made"), with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made",
			"restore": true, "patch": map[string]any{"data": map[string]any{"key": "ours"}}}), writes: []string{"patch ConfigMap"}},
		"put back": {action: "Unpatch", setup: patchedConfigMap, with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made",
			"patch": map[string]any{"data": map[string]any{"key": "ours"}}}), writes: []string{"patch ConfigMap"}},
		"delete": {action: "Delete", setup: withConfigMaps("made", "kept"), meanwhile: letGo,
			with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made"}), writes: []string{"delete ConfigMap"}},
		"delete without waiting": {action: "Delete", setup: withConfigMaps("made"),
			with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap", "name": "made", "wait": false}), writes: []string{"delete ConfigMap"}},
		"delete all": {action: "Delete", setup: withConfigMaps("a", "b", "c"), meanwhile: letGo,
			with:   fixed(params{"apiVersion": "v1", "kind": "ConfigMap"}),
			writes: []string{"delete ConfigMap", "delete ConfigMap", "delete ConfigMap"}},
		"await":        {action: "AwaitCondition", meanwhile: become, with: fixed(and(own, params{"type": "Filled"}))},
		"await ready":  {action: "AwaitReady", meanwhile: become, with: fixed(own)},
		"read":         {action: "ReadObject", with: fixed(and(own, params{"fields": []any{"spec.size"}}))},
		"list":         {action: "ListObjects", with: fixed(params{"apiVersion": "v1", "kind": "ConfigMap"})},
		"claim":        {action: "Claim", setup: claimed(nobody), with: fixed(target), writes: []string{"patch ConfigMap"}},
		"take a claim": {action: "Claim", setup: claimed(gonePlan), with: fixed(target), writes: []string{"patch ConfigMap"}},
		"release it":   {action: "Unclaim", setup: claimed(func(p *plan) string { return claimOf(p.Namespace, p.Name, p.UID) }), with: fixed(target), writes: []string{"patch ConfigMap"}},
		"end of a job": {action: "EndJob", setup: withJob, meanwhile: goJobs, with: fixed(nil), writes: []string{"delete Job"}},
		"job": {action: "RunJob", meanwhile: endJobs(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete),
			with: fixed(params{"manifest": plainJob("restore")}), writes: []string{"create Job", "create MachineState", "patch MachineState"}},
		"event": {action: "EmitEvent", with: fixed(params{"reason": "Started", "message": "it goes"}), writes: []string{"create Event"}},
		"condition": {action: "SetCondition", with: fixed(params{"type": "Filled", "reason": "Full", "message": "to the brim"}),
			writes: []string{"patch status of Plan"}},
		"request": {action: "HTTPRequest", with: fixed(params{"url": asked.URL, "method": "POST"})},
		"request whose answer is secret": {action: "HTTPRequest", with: fixed(params{"url": asked.URL, "method": "POST", "secretOutputs": map[string]any{"key": "body.key"}}),
			writes: []string{"create MachineState", "apply Secret"}},
	}
	tried := map[string]bool{"Evict": true} // by TestEvictAfterALostAnswer and TestEvictMeansOnePod: its note has the UID of the Pod
	for name, c := range cases {
		tried[c.action] = true
		t.Run(name, func(t *testing.T) {
			if c.setup == nil {
				c.setup = newPlan
			}
			covered := runnertest.Idempotent(t, runnertest.Case[*plan]{
				Client: world, Setup: c.setup, With: c.with, Meanwhile: c.meanwhile,
				Action: func(client client.Client) runner.Action[*plan] {
					return builtin.Actions[*plan](builtin.Options{Client: client, HTTP: local(host.Host)})[c.action]
				},
			})
			if diff := cmp.Diff(c.writes, covered.Writes); diff != "" {
				t.Errorf("writes of the undisturbed run (-want +got):\n%s", diff)
			}
		})
	}
	for action := range builtin.Specs() {
		if !tried[action] {
			t.Errorf("%s is not tried", action)
		}
	}
}
