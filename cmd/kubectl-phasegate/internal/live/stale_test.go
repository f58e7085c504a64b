package live_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
)

// A status that no manager writes says so, as far as can be seen with the rights of who asks.
func TestStale(t *testing.T) {
	const manager = "phasegate-system/phasegate-datastoremigration"
	now := time.Date(2026, 11, 21, 10, 5, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	lease := func(holder string, renewed time.Duration, seconds int32) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "phasegate-system", Name: "phasegate-datastoremigration"}}
		l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: now.Add(-renewed)}, LeaseDurationSeconds: &seconds}
		return l
	}
	pod := func(waiting string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "phasegate-system", Name: "phasegate-datastoremigration-0",
			Labels: map[string]string{"app.kubernetes.io/part-of": "phasegate", "app.kubernetes.io/component": "datastoremigration"}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}}}
		if waiting == "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			p.Status.ContainerStatuses = nil
		}
		return p
	}
	const (
		do      = "start a manager, which continues where the last one ended; its pods"
		command = "kubectl get pods --namespace phasegate-system --selector app.kubernetes.io/part-of=phasegate"
		silent  = "its manager, pod-0_1, does not renew lease " + manager + ": it has ended, or cannot write to the API server; "
	)
	stale := func(since *time.Time, why string) *live.Stale {
		return &live.Stale{Since: since, Why: why, Do: do, Command: command}
	}
	late := func(why string) *live.Stale {
		return &live.Stale{Since: ago(2 * time.Minute), Why: "its step should have been tried again by then, and " + why, Do: "see whether a manager runs",
			Command: "kubectl get pods --all-namespaces --selector app.kubernetes.io/part-of=phasegate"}
	}
	cases := map[string]struct {
		why       string
		manager   string
		there     []client.Object
		forbidden []string
		next      *time.Time
		ready     bool
		want      *live.Stale
	}{
		"alive":                     {why: "a renewal may be late", manager: manager, there: []client.Object{lease("pod-0_1", 29*time.Second, 15)}, next: ago(time.Hour)},
		"no pod":                    {why: "it was scaled to zero, and had no time to say so", manager: manager, there: []client.Object{lease("pod-0_1", time.Minute, 15)}, want: stale(ago(time.Minute), silent+"there is no pod of a manager in namespace phasegate-system")},
		"crashes":                   {why: "the pod says why", manager: manager, there: []client.Object{lease("pod-0_1", time.Minute, 15), pod("CrashLoopBackOff")}, want: stale(ago(time.Minute), silent+"0 of 1 pods in namespace phasegate-system are ready: phasegate-datastoremigration-0 is CrashLoopBackOff")},
		"another controller's":      {why: "the pods of other managers in the namespace are not meant", manager: "phasegate-system/phasegate-custom", want: stale(nil, "its manager is gone: there is no lease phasegate-system/phasegate-custom; there is no pod of a manager in namespace phasegate-system"), there: []client.Object{pod("")}},
		"cut off":                   {why: "it runs, and cannot write", manager: manager, there: []client.Object{lease("pod-0_1", time.Minute, 15), pod("")}, want: stale(ago(time.Minute), silent+"1 of 1 pods in namespace phasegate-system are ready")},
		"stopped":                   {why: "it ended as asked, which leaves a lease of a second without a holder", manager: manager, there: []client.Object{lease("", 3*time.Second, 1)}, forbidden: []string{"PodList"}, want: stale(ago(3*time.Second), "its manager has given up lease "+manager+", and no other one has taken it; you may not list its pods in namespace phasegate-system")},
		"taken over":                {why: "a standby needs a moment", manager: manager, there: []client.Object{lease("", time.Second, 1)}},
		"uninstalled":               {why: "somebody removed all of it", manager: manager, want: stale(nil, "its manager is gone: there is no lease "+manager+"; there is no pod of a manager in namespace phasegate-system")},
		"at rest":                   {why: "nothing of a Complete migration changes without a manager", manager: manager, ready: true},
		"may not read":              {why: "the status alone has to do", manager: manager, forbidden: []string{"Lease"}, next: ago(2 * time.Minute), want: late("you may not read lease " + manager + ", which its manager renews")},
		"may not read, and in time": {why: "a look may be late", manager: manager, forbidden: []string{"Lease"}, next: ago(time.Second)},
		"no lease at all":           {why: "a manager outside of a cluster has none", next: ago(2 * time.Minute), want: late("which manager drives it cannot be seen")},
		"nothing to be seen":        {why: "a step may take long"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			refuse := func(kind string) error {
				for _, f := range c.forbidden {
					if f == kind {
						return apierrs.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("not you"))
					}
				}
				return nil
			}
			reader := interceptor.NewClient(fake.NewClientBuilder().WithObjects(c.there...).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					return errors.Join(refuse("Lease"), w.Get(ctx, key, o, opts...))
				},
				List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					return errors.Join(refuse("PodList"), w.List(ctx, l, opts...))
				},
			})
			m := live.Object{Name: "to-v3", Machine: v1alpha1.MachineStatus{Phase: "Migrating"}, Manager: c.manager}
			if c.next != nil {
				m.Machine.Attempts, m.Machine.NotBefore = 1, &metav1.MicroTime{Time: *c.next}
			}
			if c.ready {
				m.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
			}
			m.LookForManager(t.Context(), reader, now)
			if diff := cmp.Diff(c.want, m.Stale); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
