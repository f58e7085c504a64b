package datastoremigration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Of one manager on the pod network nobody is left who opens v1, when its node is lost under the lock.
func TestAManagerIsLeft(t *testing.T) {
	pod := func(name, node string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": "phasegate", "app.kubernetes.io/instance": "a", "app.kubernetes.io/component": "datastoremigration"}}}
		p.Spec.NodeName = node
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	other := func(p *corev1.Pod) { p.Labels["app.kubernetes.io/component"] = "mcpserver" }
	hosted := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for name, c := range map[string]struct {
		why  string
		pods []corev1.Pod
		left bool
	}{
		"alone":                {"nobody stands by", []corev1.Pod{pod("own", "n1")}, false},
		"two nodes":            {"the other has its address already", []corev1.Pod{pod("own", "n1"), pod("b", "n2")}, true},
		"one node":             {"both go with it", []corev1.Pod{pod("own", "n1"), pod("b", "n1")}, false},
		"the other not ready":  {"it may never be", []corev1.Pod{pod("own", "n1"), pod("b", "n2", unready)}, false},
		"the other goes":       {"a rollout, or a scale down", []corev1.Pod{pod("own", "n1"), pod("b", "n2", going)}, false},
		"another controller":   {"it opens nothing", []corev1.Pod{pod("own", "n1"), pod("b", "n2", other)}, false},
		"on the host network":  {"a new one needs no address", []corev1.Pod{pod("own", "n1", hosted)}, true},
		"own is not ready yet": {"two others are", []corev1.Pod{pod("own", "n1", unready), pod("b", "n2"), pod("c", "n3")}, true},
		"own is not there":     {"nothing is known of it", []corev1.Pod{pod("b", "n2")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeManagers(c.pods, types.NamespacedName{Namespace: "ns", Name: "own"}); (len(got) == 0) != c.left {
				t.Errorf("found %v: %s", got, c.why)
			}
		})
	}
}
