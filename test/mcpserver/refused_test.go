package mcpserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// badPolicy is one that decodes, and that the API server refuses.
const badPolicy = `{"spec": {"containers": [{"name": "mcp", "imagePullPolicy": "Sometimes"}]}}`

func podTemplate(text string) func(*v1beta1.MCPServer) {
	return func(srv *v1beta1.MCPServer) { srv.Spec.PodTemplateSpec = &runtime.RawExtension{Raw: []byte(text)} }
}

// What the API server refuses of the proxy is told where people look, not only in
// the proxy's log, and a server that runs goes on as it is.
func TestRefusedPodTemplateIsTold(t *testing.T) {
	t.Parallel()
	s := readySpace(t)
	before := s.workload("fetch")
	s.edit("fetch", podTemplate(badPolicy))
	s.awaitPhase("fetch", "Failed")
	s.awaitCondition("fetch", v1beta1.ConditionPodTemplateValid, metav1.ConditionFalse, v1beta1.ReasonInvalidPodTemplateSpec)
	s.describes("fetch", "Warning "+v1beta1.ReasonInvalidPodTemplateSpec, `Unsupported value: "Sometimes"`)
	if message := s.get("fetch").Status.Message; !strings.Contains(message, `Unsupported value: "Sometimes"`) {
		t.Errorf("status.message does not say why: %s", message)
	}
	if now := s.workload("fetch"); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("pods were replaced for a template that no pod can have:\n%+v, were\n%+v", now, before)
	}
	s.edit("fetch", podTemplate(`{"spec": {"containers": [{"name": "mcp", "imagePullPolicy": "Always"}]}}`))
	s.awaitPhase("fetch", "Ready")
	s.awaitCondition("fetch", v1beta1.ConditionPodTemplateValid, metav1.ConditionTrue, v1beta1.ReasonValidPodTemplateSpec)
}

// The same for a policy, which is about what no schema says, and which nobody tells of
// when it goes.
func TestRefusalOfAPolicyIsTold(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	policy := s.refuseStatefulSets("every StatefulSet needs an owner in the company")
	s.create("fetch")
	s.awaitCondition("fetch", v1beta1.ConditionPodTemplateValid, metav1.ConditionFalse, v1beta1.ReasonInvalidPodTemplateSpec)
	s.awaitPhase("fetch", "Failed")
	s.describes("fetch", "Warning "+v1beta1.ReasonInvalidPodTemplateSpec, "every StatefulSet needs an owner in the company")
	if message := s.get("fetch").Status.Message; !strings.Contains(message, "every StatefulSet needs an owner in the company") {
		t.Errorf("status.message does not say why: %s", message)
	}
	for _, obj := range policy {
		if err := s.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "the server to come up without the policy", func() error {
		s.annotate("fetch", map[string]string{"example.org/look": fmt.Sprint(s.get("fetch").ResourceVersion)})
		return same("Ready", s.get("fetch").Status.Phase)
	})
	s.awaitNoCondition("fetch", v1beta1.ConditionPodTemplateValid)
}

// A quota on limits takes no pod that says none; a server's own pods are the spec's.
func TestNamespaceWithAQuota(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "all"}}
	quota.Spec.Hard = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"} {
		quota.Spec.Hard[name] = resource.MustParse("100G")
	}
	if err := s.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	s.create("fetch", func(srv *v1beta1.MCPServer) {
		all := v1beta1.ResourceList{CPU: "100m", Memory: "64Mi"}
		srv.Spec.Resources = v1beta1.ResourceRequirements{Requests: all, Limits: all}
	})
	s.awaitPhase("fetch", "Ready")
}

// refuseStatefulSets returns the objects of a policy once it works in the namespace.
func (s *space) refuseStatefulSets(why string) []client.Object {
	s.t.Helper()
	here := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.ns}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets"}},
	}}}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "false", Message: why}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionv1.ValidationAction{admissionv1.Deny}
	binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: here}
	made := []client.Object{policy, binding}
	for _, obj := range made {
		if err := s.Client.Create(s.t.Context(), obj); err != nil {
			s.t.Fatal(err)
		}
	}
	harness.Eventually(s.t, "the policy to work", func() error {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "tried"}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: firstImage}}
		err := s.Client.Create(s.t.Context(), set, client.DryRunAll)
		if apierrs.IsInvalid(err) && strings.Contains(err.Error(), why) {
			return nil
		}
		return errors.Join(errors.New("it does not refuse yet"), err)
	})
	return made
}
