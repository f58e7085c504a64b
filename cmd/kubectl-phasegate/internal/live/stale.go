package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

// Stale says that a status may be old, because no manager writes it.
type Stale struct {
	// Since is the last sign of a manager; nil where there is none to be seen.
	Since *time.Time `json:"since,omitempty"`
	// Why is a sentence without a full stop.
	Why string `json:"why"`
	// Do says what to do about it, Command is to be typed; empty where there is none.
	Do      string `json:"do"`
	Command string `json:"command,omitempty"`
}

// overdueAfter is how long a try may be late before nobody is taken to look: the clocks of two machines differ, and a
// step may be under way.
const overdueAfter = time.Minute

// managerPods are the pods of managers, as the chart labels them.
var managerPods = client.MatchingLabels{"app.kubernetes.io/part-of": "phasegate"}

// signs are what can be read of the manager of an object with the rights that one has.
type signs struct {
	lease    *coordinationv1.Lease
	leaseErr error
	pods     []corev1.Pod
	podsErr  error
}

// LookForManager fills Stale. What may not be read is left out; it is no error.
func (o *Object) LookForManager(ctx context.Context, c client.Reader, now time.Time) {
	var s signs
	namespace, name, known := strings.Cut(o.Manager, "/")
	if known {
		s.lease = &coordinationv1.Lease{}
		s.leaseErr = c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, s.lease)
	}
	if o.Stale = staleOf(o, s, now); o.Stale == nil || !known {
		return
	}
	pods := &corev1.PodList{}
	s.podsErr = c.List(ctx, pods, client.InNamespace(namespace), managerPods)
	for i := range pods.Items { // the chart calls the Deployment as its lease; another controller's is not meant
		if strings.HasPrefix(pods.Items[i].Name, name+"-") {
			s.pods = append(s.pods, pods.Items[i])
		}
	}
	o.Stale = staleOf(o, s, now)
}

// staleOf is pure. An object that is Ready is at rest: that it is so does not get old without a manager.
func staleOf(o *Object, s signs, now time.Time) *Stale {
	switch {
	case meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionReady) && !o.Deleting:
		return nil
	case s.lease == nil:
		return overdue(o, "which manager drives it cannot be seen", now)
	case apierrs.IsForbidden(s.leaseErr):
		return overdue(o, "you may not read lease "+o.Manager+", which its manager renews", now)
	case apierrs.IsNotFound(s.leaseErr):
		return stale(o, s, nil, "its manager is gone: there is no lease "+o.Manager)
	case s.leaseErr != nil:
		return nil // the next look may tell
	}
	spec := &s.lease.Spec
	renewed, length := spec.RenewTime, time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 15))*time.Second
	if renewed == nil || now.Sub(renewed.Time) <= 2*length { // another one begins after one, where there is one
		return nil
	}
	why := "its manager has given up lease " + o.Manager + ", and no other one has taken it"
	if holder := ptr.Deref(spec.HolderIdentity, ""); holder != "" {
		why = fmt.Sprintf("its manager, %s, does not renew lease %s: it has ended, or cannot write to the API server", holder, o.Manager)
	}
	return stale(o, s, &renewed.Time, why)
}

// overdue judges by the status alone, which tells when a step that failed is tried again.
func overdue(o *Object, why string, now time.Time) *Stale {
	st := o.Machine
	if st.Attempts == 0 || st.NotBefore == nil || now.Sub(st.NotBefore.Time) <= overdueAfter {
		return nil
	}
	return &Stale{Since: new(st.NotBefore.UTC()), Why: "its step should have been tried again by then, and " + why,
		Do: "see whether a manager runs", Command: podsCommand("--all-namespaces")}
}

func stale(o *Object, s signs, since *time.Time, why string) *Stale {
	if since != nil {
		since = new(since.UTC())
	}
	namespace, _, _ := strings.Cut(o.Manager, "/")
	return &Stale{Since: since, Why: why + "; " + podsOf(namespace, s),
		Do: "start a manager, which continues where the last one ended; its pods", Command: podsCommand("--namespace " + namespace)}
}

func podsCommand(where string) string {
	return "kubectl get pods " + where + " --selector app.kubernetes.io/part-of=phasegate"
}

// podsOf is what can be seen of the manager's pods.
func podsOf(namespace string, s signs) string {
	if apierrs.IsForbidden(s.podsErr) {
		return "you may not list its pods in namespace " + namespace
	}
	if s.podsErr != nil {
		return fmt.Sprintf("its pods cannot be listed: %v", s.podsErr)
	}
	ready, troubled := 0, ""
	for i := range s.pods {
		if why := notReady(&s.pods[i]); why == "" {
			ready++
		} else if troubled == "" {
			troubled = ": " + why
		}
	}
	if len(s.pods) == 0 {
		return "there is no pod of a manager in namespace " + namespace
	}
	return fmt.Sprintf("%d of %d pods in namespace %s are ready%s", ready, len(s.pods), namespace, troubled)
}

func notReady(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	why := string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "" {
			why = waiting.Reason
		}
	}
	return pod.Name + " is " + why
}
