package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const managerUser = "system:serviceaccount:" + metav1.NamespaceDefault + ":" + managerAccount

// tiered are the kinds of which Calico's webhook asks for rights by tier.
var tiered = []string{"networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"}

// What v3's admission would refuse to a retreat, or to the opening of v3, is found before v1 is locked.
func TestWebhooksBeforeTheLock(t *testing.T) {
	w := pristine(t)
	hooks := w.calicoWebhooks(t)
	w.grantInTiers(t, "create", "update")
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "begin")
	wake := func() { w.annotate(t, setup.MigrationName, map[string]string{"unrelated": time.Now().String()}) }
	inPending := func(t *testing.T, why string, says ...string) {
		t.Helper()
		for _, part := range says {
			if dm := w.awaitMessage(t, setup.MigrationName, part); dm.Status.Phase != "Pending" || dm.Status.Lock != nil {
				t.Fatalf("phase %s, lock %v: %s", dm.Status.Phase, dm.Status.Lock, why)
			}
		}
	}
	inTurn(t, "a right by tier", func(t *testing.T) {
		inPending(t, "a rollback could not delete its copies", "this account may not delete tier.networkpolicies.projectcalico.org")
		w.grantInTiers(t, "create", "update", "delete")
		wake()
	})
	inTurn(t, "an identity", func(t *testing.T) {
		inPending(t, "v3 would stay closed for good", "ClusterInformation default: create is refused: ", `admission webhook "cluster-info.api.projectcalico.org" denied the request`, managerUser)
		if info := w.lock(); w.Client.Get(t.Context(), client.ObjectKeyFromObject(info), info) != nil || info.Object["spec"].(map[string]any)["datastoreReady"] != true {
			t.Errorf("v1 is not open: %v", info.Object["spec"])
		}
		hooks.freeze("DELETE " + fixture.OwnerTier)
		hooks.letPass(managerUser)
		wake()
	})
	inTurn(t, "a tier", func(t *testing.T) {
		inPending(t, "a rollback could not delete its copies", "GlobalNetworkPolicy ", "of tier "+fixture.OwnerTier+", delete is refused: ", "tier "+fixture.OwnerTier+" is frozen")
		hooks.freeze("")
		wake()
	})
	w.awaitGate(t, setup.MigrationName, "begin")
	w.remove(t, setup.MigrationName)
}

// assertNotesKept: what the webhooks refuse to the manager when v1 is gone, the rights of a tier and ClusterInformation,
// keeps its notes and is told; nothing else does.
func (w *world) assertNotesKept(t *testing.T, frozen string) {
	t.Helper()
	told := w.awaitEvent(t, "NotesKept")
	for _, part := range []string{"ClusterInformation default", "GlobalNetworkPolicy", "harmless", "tier " + frozen + " is frozen", "only Calico writes ClusterInformation"} {
		if !strings.Contains(told, part) {
			t.Errorf("%q is not told: %s", part, told)
		}
	}
	var noted []string
	for _, kind := range w.Registry.All() {
		for _, obj := range w.list(t, kind.V3GVK()) {
			if obj.GetAnnotations()[migrationv1.AnnotationMigratedBy] != "" && obj.GetLabels()[resources.TierLabel] != frozen {
				noted = append(noted, kind.Name()+" "+obj.GetName())
			}
		}
	}
	if diff := cmp.Diff([]string{"ClusterInformation default"}, noted); diff != "" {
		t.Errorf("who has notes outside the frozen tier (-want +got):\n%s", diff)
	}
}

// grantInTiers gives the manager the rights of the chart, and of those by tier only the verbs.
func (w *world) grantInTiers(t *testing.T, verbs ...string) {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, rule := range managerRules(t) {
		rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return strings.HasPrefix(r, "tier.") })
		if len(rule.Resources) > 0 || len(rule.NonResourceURLs) > 0 {
			rules = append(rules, rule)
		}
	}
	inTiers := rbacv1.PolicyRule{APIGroups: []string{resources.V3Group}, Verbs: verbs}
	for _, plural := range tiered {
		inTiers.Resources = append(inTiers.Resources, "tier."+plural)
	}
	if err := w.Grant(t.Context(), managerAccount, append(rules, inTiers)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Grant(context.Background(), managerAccount, managerRules(t)); err != nil {
			t.Error(err)
		}
	})
}

// calicoWebhooks play Calico's admission webhooks, registered as its manifest has them: a policy may be written by
// those who may do so in its tier, and ClusterInformation by Calico's own components.
type calicoWebhooks struct {
	w *world
	// user passes the webhook of ClusterInformation, too; frozen is an operation and a tier in which nobody may do it.
	user, frozen atomic.Value
}

func (h *calicoWebhooks) letPass(user string)            { h.user.Store(user) }
func (h *calicoWebhooks) freeze(operationAndTier string) { h.frozen.Store(operationAndTier) }

// calicoWebhooks are in force when this returns, until the test ends.
func (w *world) calicoWebhooks(t *testing.T) *calicoWebhooks {
	t.Helper()
	h := &calicoWebhooks{w: w}
	h.letPass("")
	h.freeze("")
	mux := http.NewServeMux()
	mux.HandleFunc("/rbac", answer(h.byTier))
	mux.HandleFunc("/cluster-info", answer(h.byIdentity))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hook := func(name, path string, fails registrationv1.FailurePolicyType, rules ...registrationv1.Rule) registrationv1.ValidatingWebhook {
		hook := registrationv1.ValidatingWebhook{
			Name: name, AdmissionReviewVersions: []string{"v1"}, SideEffects: new(registrationv1.SideEffectClassNone), TimeoutSeconds: new(int32(5)), FailurePolicy: &fails,
			ClientConfig: registrationv1.WebhookClientConfig{CABundle: ca, URL: new(server.URL + path)},
		}
		for _, rule := range rules {
			hook.Rules = append(hook.Rules, registrationv1.RuleWithOperations{Rule: rule,
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update, registrationv1.Delete}})
		}
		return hook
	}
	of := func(group, version string, plurals ...string) registrationv1.Rule {
		return registrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: plurals}
	}
	config := &registrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "calico-webhooks"}, Webhooks: []registrationv1.ValidatingWebhook{
		hook("tiered-rbac.projectcalico.org", "/rbac", registrationv1.Fail, of(resources.V3Group, resources.V3Version, tiered...)),
		// The second rule is for the probe below.
		hook("cluster-info.api.projectcalico.org", "/cluster-info", registrationv1.Ignore, of(resources.V3Group, resources.V3Version, "clusterinformations"), of("policy", "v1", "poddisruptionbudgets")),
	}}
	if err := w.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), config)); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "the webhooks in force", soon, func() error {
		pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault}}
		return nilIf(apierrors.Classify(w.Client.Create(t.Context(), pdb, client.DryRunAll)) == apierrors.Forbidden)
	})
	return h
}

// answer serves a webhook; decide says why a request is refused, and for which reason.
func answer(decide func(*admissionv1.AdmissionRequest) (string, metav1.StatusReason)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		why, reason := decide(review.Request)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: why == ""}
		if why != "" {
			review.Response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: why, Reason: reason}
		}
		review.Request = nil
		_ = json.NewEncoder(rw).Encode(review)
	}
}

func (h *calicoWebhooks) byIdentity(r *admissionv1.AdmissionRequest) (string, metav1.StatusReason) {
	user := r.UserInfo.Username
	calicos := slices.Contains([]string{"calico-node", "calico-typha", "calico-kube-controllers"}, strings.TrimPrefix(user, "system:serviceaccount:"+setup.CalicoNamespace+":"))
	if calicos || user == h.user.Load() {
		return "", ""
	}
	return fmt.Sprintf("only Calico writes ClusterInformation (user: %s)", user), metav1.StatusReasonMethodNotAllowed
}

func (h *calicoWebhooks) byTier(r *admissionv1.AdmissionRequest) (string, metav1.StatusReason) {
	var policy struct {
		Spec struct {
			Tier string `json:"tier"`
		} `json:"spec"`
	}
	raw := r.Object.Raw
	if len(raw) == 0 {
		raw = r.OldObject.Raw
	}
	if err := json.Unmarshal(raw, &policy); err != nil {
		return err.Error(), metav1.StatusReasonInvalid
	}
	tier, resource := policy.Spec.Tier, "tier."+r.Resource.Resource
	if h.frozen.Load() == string(r.Operation)+" "+tier {
		return fmt.Sprintf("tier %s is frozen", tier), metav1.StatusReasonForbidden
	}
	verb := strings.ToLower(string(r.Operation))
	if h.may(r, "get", "tiers", "", tier) && (h.may(r, verb, resource, r.Namespace, tier+".*") || h.may(r, verb, resource, r.Namespace, r.Name)) {
		return "", ""
	}
	return fmt.Sprintf("%s may not %s %s in tier %s", r.UserInfo.Username, verb, r.Resource.Resource, tier), metav1.StatusReasonForbidden
}

// may asks the API server whether the user of a request may do something.
func (h *calicoWebhooks) may(r *admissionv1.AdmissionRequest, verb, resource, namespace, name string) bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.UserInfo.Username, Groups: r.UserInfo.Groups, UID: r.UserInfo.UID,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: resources.V3Group, Version: resources.V3Version, Verb: verb, Resource: resource, Namespace: namespace, Name: name},
	}}
	err := h.w.Client.Create(context.Background(), review)
	return err == nil && review.Status.Allowed
}
