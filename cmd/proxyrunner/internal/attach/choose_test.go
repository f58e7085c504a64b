package attach

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChoose(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) corev1.Pod {
		yes := true
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "fetch", Controller: &yes}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		if change != nil {
			change(&p)
		}
		return p
	}
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	foreign := func(p *corev1.Pod) { p.OwnerReferences[0].Name = "other" }
	deployed := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }
	for name, c := range map[string]struct {
		pods []corev1.Pod
		want string
		err  string
		why  string
	}{
		"none":          {err: "it has no pod yet", why: "the StatefulSet has just been made"},
		"one":           {pods: []corev1.Pod{pod("fetch-0", nil)}, want: "fetch-0", why: "it can serve"},
		"several":       {pods: []corev1.Pod{pod("fetch-1", nil), pod("fetch-0", nil)}, want: "fetch-0", why: "the choice does not depend on the order of a list"},
		"terminating":   {pods: []corev1.Pod{pod("fetch-0", terminating)}, err: "no pod can serve: fetch-0 is terminating", why: "its stream would end in a moment"},
		"the next one":  {pods: []corev1.Pod{pod("fetch-0", terminating), pod("fetch-1", nil)}, want: "fetch-1", why: "another one can serve"},
		"pending":       {pods: []corev1.Pod{pod("fetch-0", pending)}, err: "no pod can serve: fetch-0 is Pending", why: "there is no process to attach to"},
		"not ready":     {pods: []corev1.Pod{pod("fetch-0", unready)}, err: "no pod can serve: fetch-0 is not ready", why: "its author says that it cannot serve yet"},
		"no conditions": {pods: []corev1.Pod{pod("fetch-0", func(p *corev1.Pod) { p.Status.Conditions = nil })}, err: "no pod can serve: fetch-0 is not ready", why: "a kubelet has not looked at it"},
		"foreign":       {pods: []corev1.Pod{pod("fetch-0", foreign)}, err: "no pod can serve: fetch-0 is not one of the StatefulSet's", why: "a label is anybody's to set"},
		"a ReplicaSet's": {pods: []corev1.Pod{pod("fetch-0", deployed)}, err: "no pod can serve: fetch-0 is not one of the StatefulSet's",
			why: "the proxy's own pods must never be attached to"},
		"nobody's": {pods: []corev1.Pod{pod("fetch-0", func(p *corev1.Pod) { p.OwnerReferences = nil })}, err: "no pod can serve: fetch-0 is not one of the StatefulSet's", why: "it was made by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(c.pods, "fetch")
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != c.want || message != c.err {
				t.Errorf("choose = %q, %q; want %q, %q: %s", got, message, c.want, c.err, c.why)
			}
		})
	}
}
