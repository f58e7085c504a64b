package builtin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAwaitCondition(t *testing.T) {
	condition := func(status metav1.ConditionStatus, generation int64) metav1.Condition {
		return metav1.Condition{Type: "Filled", Status: status, Reason: "Full", Message: "to the brim", ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(noon)}
	}
	cases := map[string]struct {
		why  string
		has  metav1.Condition
		with params
		// edited: the spec was changed after the condition was set.
		edited bool
		want   string
	}{
		"true":         {why: "it is what is waited for", has: condition("True", 1)},
		"false":        {why: "it is not", has: condition("False", 1), want: "has Filled=False, not True: Full to the brim"},
		"wanted false": {why: "any status can be waited for", has: condition("False", 1), with: params{"status": "False"}},
		"untold":       {why: "most controllers do not say which generation they mean", has: condition("True", 0)},
		"another":      {why: "the type decides", has: condition("True", 1), with: params{"type": "Empty"}, want: "has no condition Empty"},
		"older":        {why: "it is about a spec that is not the present one", has: condition("True", 1), edited: true, want: "for generation 1, and is at 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			if err := world.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			p.Status.Conditions = []metav1.Condition{c.has}
			if err := world.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if c.edited {
				p.Spec["size"] = int64(2)
				if err := world.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			out, err := act(t, world, "AwaitCondition", p, and(own, params{"type": "Filled"}, c.with))
			if c.want != "" {
				if reasonOf(err) != "waits" || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want to wait: %s", c.why, err, c.want)
				}
				return
			}
			if diff := cmp.Diff(map[string]any{"reason": "Full", "message": "to the brim"}, out); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
		})
	}
}

func TestReadObject(t *testing.T) {
	world, p := plansFor(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "secret", Labels: map[string]string{"a": "b"}}, StringData: map[string]string{"password": "x"}}
	large := somebodys(p.Namespace, "large")
	large.Data["key"] = strings.Repeat("x", 9000)
	for _, obj := range []client.Object{secret, large} {
		if err := world.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		why    string
		of     params
		fields []any
		want   map[string]any
		reason string
	}{
		"default": {why: "what health is judged by", of: own, want: map[string]any{"found": true, "object": map[string]any{
			"metadata": map[string]any{"generation": int64(1)},
			"status":   map[string]any{"machine": map[string]any{"phase": "Working", "enteredAt": "2026-03-04T12:00:00.000000Z"}}}}},
		"fields": {why: "what is named, and a field that is not there is left out", of: own, fields: []any{"spec.size", "spec.none"},
			want: map[string]any{"found": true, "object": map[string]any{"spec": map[string]any{"size": int64(1)}}}},
		"not there":            {why: "its absence is an answer", of: params{"apiVersion": "v1", "kind": "ConfigMap", "name": "none"}, want: map[string]any{"found": false, "object": map[string]any{}}},
		"through a number":     {why: "a path that leads nowhere is a mistake of the file", of: own, fields: []any{"spec.size.more"}, reason: "BadParameter"},
		"a secret":             {why: "the status is readable by many more than Secrets are", of: params{"apiVersion": "v1", "kind": "Secret", "name": "secret"}, fields: []any{"data"}, reason: "SecretRefused"},
		"a secret's metadata":  {why: "kubectl apply leaves the content in an annotation", of: params{"apiVersion": "v1", "kind": "Secret", "name": "secret"}, fields: []any{"metadata"}, reason: "SecretRefused"},
		"a secret's labels":    {why: "they hold nothing secret", of: params{"apiVersion": "v1", "kind": "Secret", "name": "secret"}, fields: []any{"metadata.labels"}, want: map[string]any{"found": true, "object": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}}},
		"too large":            {why: "the result of a phase has 16 KiB", of: params{"apiVersion": "v1", "kind": "ConfigMap", "name": "large"}, fields: []any{"data"}, reason: "TooLarge"},
		"a kind that is wrong": {why: "a typo must not look like an object that is not there", of: params{"apiVersion": "v1", "kind": "ConfigMpa", "name": "a"}, reason: `no matches for kind "ConfigMpa"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			with := params{}
			if c.fields != nil {
				with["fields"] = c.fields
			}
			out, err := act(t, world, "ReadObject", p, and(c.of, with))
			if diff := cmp.Diff(c.want, out); diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
			if got := reasonOf(err); (c.reason == "") != (err == nil) || !strings.Contains(got, c.reason) {
				t.Errorf("%s: got %q, want %q", c.why, got, c.reason)
			}
		})
	}
}

// One Job in each visit to a phase, whatever happens in it.
func TestRunJobOncePerVisit(t *testing.T) {
	world, p := plansFor(t)
	var got []int
	run := func(name string) {
		t.Helper()
		startJob(t, world, p, name)
		got = append(got, jobsOf(t, p))
	}
	run("restore")
	run("restore")
	run("check")
	nextVisit(t, world, p)
	run("restore")
	run(strings.Repeat("long", 30))
	if _, err := act(t, world, "Delete", p, params{"apiVersion": "batch/v1", "kind": "Job", "wait": false}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 1, 2, 3, 4, 0}, append(got, jobsOf(t, p))); diff != "" { // the last is that after the release
		t.Errorf("numbers of Jobs (-want +got):\n%s", diff)
	}
}

// podEnds plays the kubelet: the one Job of a plan has a Pod, which ends. It answers the name of the Job.
func podEnds(t *testing.T, world client.Client, p *plan, phase corev1.PodPhase, end corev1.ContainerStateTerminated) string {
	t.Helper()
	list := &batchv1.JobList{}
	if err := world.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil {
		t.Fatal(err)
	}
	name := list.Items[0].Name
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "default"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "tried", Labels: map[string]string{batchv1.JobNameLabel: name}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "restore", Image: "restore:1"}}},
	}
	for _, obj := range []client.Object{account, pod} {
		if err := world.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "restore", State: corev1.ContainerState{Terminated: &end}}}
	if err := world.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return name
}

// What a Job says of itself is kept: neither the Pod nor the Job need be there when the step is called again.
func TestRunJobSays(t *testing.T) {
	world, p := plansFor(t)
	with := params{"manifest": plainJob("restore"), "output": true}
	startJob(t, world, p, "restore")
	if err := endJobs(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)(t.Context(), world, p); err != nil {
		t.Fatal(err)
	}
	if _, err := act(t, world, "RunJob", p, with); reasonOf(err) != "JobOutputLost" {
		t.Errorf("without a Pod: got %v, want JobOutputLost", err)
	}
	name := podEnds(t, world, p, corev1.PodSucceeded, corev1.ContainerStateTerminated{Reason: "Completed", Message: "snapshot-17\n"})
	for _, when := range []string{"while all is there", "when all is gone"} {
		out, err := act(t, world, "RunJob", p, with)
		if diff := cmp.Diff(map[string]any{"name": name, "succeeded": int64(1), "message": "snapshot-17"}, out); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
		deleteJobs(t, p)
		if err := world.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(p.Namespace), client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunJobFails(t *testing.T) {
	world, p := plansFor(t)
	startJob(t, world, p, "restore")
	name := podEnds(t, world, p, corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "no such backup"})
	if err := endJobs(batchv1.JobFailureTarget, batchv1.JobFailed)(t.Context(), world, p); err != nil {
		t.Fatal(err)
	}
	_, err := act(t, world, "RunJob", p, params{"manifest": plainJob("restore")})
	want := "Job " + p.Namespace + "/" + name + " failed: BackoffLimitExceeded: too often; Pod tried: container restore: Error (exit code 3) no such backup; see its logs; delete it to run it again, or give the Job another name"
	if reasonOf(err) != "JobFailed" || err.Error() != want {
		t.Errorf("got %v\nwant JobFailed: %s", err, want)
	}
	deleteJobs(t, p) // as it says
	startJob(t, world, p, "restore")
	if got := jobsOf(t, p); got != 1 {
		t.Errorf("%d Jobs, want another one in the place of the one that failed and was deleted", got)
	}
}

func TestEmitEvent(t *testing.T) {
	world, p := plansFor(t)
	long := strings.Repeat("ä", 2000)
	for _, with := range []params{
		{"reason": "Started", "message": "it goes"},
		{"reason": "Started", "message": "said in other words"},
		{"reason": "Slow", "message": long, "type": "Warning"},
	} {
		if _, err := act(t, world, "EmitEvent", p, with); err != nil {
			t.Fatal(err)
		}
	}
	list := &eventsv1.EventList{}
	if err := world.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Name != "plan" || e.Regarding.UID != p.UID || e.ReportingController != "phasegate" {
			t.Errorf("event about %+v of %s", e.Regarding, e.ReportingController)
		}
		told[e.Type+" "+e.Reason] = len(e.Note)
	}
	if diff := cmp.Diff(map[string]int{"Normal Started": len("it goes"), "Warning Slow": 1023}, told); diff != "" {
		t.Errorf("events and the length of their notes (-want +got):\n%s", diff)
	}
}

// An object that is deleted with its namespace must not wait for an Event that nobody would see.
func TestNoEventInANamespaceThatEnds(t *testing.T) {
	world, p := plansFor(t)
	if err := world.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}); err != nil {
		t.Fatal(err)
	}
	if _, err := act(t, world, "EmitEvent", p, params{"reason": "Released", "message": "done"}); err != nil {
		t.Error(err)
	}
}

// A template in the type could fill the status.
func TestConditionsAreNotMoreThan16(t *testing.T) {
	world, p := plansFor(t)
	for i := range 17 {
		want := map[bool]string{true: "TooManyConditions"}[i == 16]
		if _, err := act(t, world, "SetCondition", p, params{"type": "T" + strings.Repeat("x", i), "reason": "A"}); reasonOf(err) != want {
			t.Errorf("condition %d: got %v, want %q", i, err, want)
		}
	}
}
