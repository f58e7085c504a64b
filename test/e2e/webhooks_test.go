package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const managerUser = "system:serviceaccount:" + metav1.NamespaceDefault + ":" + managerAccount

// What v3's admission would refuse to a retreat, or to the opening of v3, is found before v1 is locked.
func TestWebhooksBeforeTheLock(t *testing.T) {
	w := pristine(t)
	hooks := w.calicoWebhooks(t)
	w.grantInTiers(t, "create", "update")
	w.lend(t, tierless())
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
	inTurn(t, "a tier that is not there", func(t *testing.T) {
		inPending(t, "the copy would be refused under the lock", "GlobalNetworkPolicy "+tierless().GetName(), "there is no tier lost")
		w.do(t, w.Client.Delete(t.Context(), tierless()))
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

// tierless is a policy of v1 whose tier is missing: v1 takes it, and so does v3 where no webhook asks for the tier.
func tierless() *unstructured.Unstructured {
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tier": "lost", "selector": "all()"}}}
	policy.SetAPIVersion(v1)
	policy.SetKind("GlobalNetworkPolicy")
	policy.SetName("lost.policy")
	return policy
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
	if diff := gocmp.Diff([]string{"ClusterInformation default"}, noted); diff != "" {
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
	for _, plural := range calico.TieredPolicies {
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
// those who may do so in its tier, which must be there, and ClusterInformation by Calico's own components. TestRealWebhooks
// runs the real ones, which remember what somebody may do for 5 s besides.
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
	for i, decide := range []func(*admissionv1.AdmissionRequest) (string, metav1.StatusReason){h.byTier, h.byIdentity} {
		mux.HandleFunc(calico.WebhookPaths[i], answer(decide))
	}
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := calico.WebhookConfiguration()
	for i, path := range calico.WebhookPaths {
		config.Webhooks[i].ClientConfig = registrationv1.WebhookClientConfig{CABundle: ca, URL: new(server.URL + path)}
	}
	probed := config.Webhooks[1].Rules[0].DeepCopy()
	probed.Rule = registrationv1.Rule{APIGroups: []string{"policy"}, APIVersions: []string{"v1"}, Resources: []string{"poddisruptionbudgets"}}
	config.Webhooks[1].Rules = append(config.Webhooks[1].Rules, *probed)
	w.do(t, w.Client.Create(t.Context(), config))
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), config)); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "the webhooks in force", func() error {
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

// byTier asks for rights in the tier that a policy comes into or is in, and in the one that it leaves. The tier that it
// comes into must be there to stay.
func (h *calicoWebhooks) byTier(r *admissionv1.AdmissionRequest) (string, metav1.StatusReason) {
	to, err := tierOf(r.Object.Raw)
	from, oldErr := tierOf(r.OldObject.Raw)
	if err := errors.Join(err, oldErr); err != nil {
		return err.Error(), metav1.StatusReasonInvalid
	}
	for _, tier := range slices.Compact([]string{cmp.Or(to, from), cmp.Or(from, to)}) {
		if h.frozen.Load() == string(r.Operation)+" "+tier {
			return fmt.Sprintf("tier %s is frozen", tier), metav1.StatusReasonForbidden
		}
		verb, resource := strings.ToLower(string(r.Operation)), "tier."+r.Resource.Resource
		if !h.may(r, "get", "tiers", "", tier) || !h.may(r, verb, resource, r.Namespace, tier+".*") && !h.may(r, verb, resource, r.Namespace, r.Name) {
			return fmt.Sprintf("%s may not %s %s in tier %s", r.UserInfo.Username, verb, r.Resource.Resource, tier), metav1.StatusReasonForbidden
		}
	}
	if to == "" {
		return "", ""
	}
	return h.lacksTier(to)
}

// tierOf is the tier of a policy; empty where there is no policy.
func tierOf(raw []byte) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var policy struct{ Spec struct{ Tier string } }
	err := json.Unmarshal(raw, &policy)
	return cmp.Or(policy.Spec.Tier, "default"), err
}

// lacksTier asks v3 for a tier, whoever serves it.
func (h *calicoWebhooks) lacksTier(name string) (string, metav1.StatusReason) {
	tier := &unstructured.Unstructured{}
	tier.SetAPIVersion(v3)
	tier.SetKind("Tier")
	switch err := h.w.Client.Get(context.Background(), client.ObjectKey{Name: name}, tier); {
	case apierrs.IsNotFound(err):
		return fmt.Sprintf("there is no tier %s", name), metav1.StatusReasonForbidden
	case err != nil:
		return fmt.Sprintf("ask for tier %s: %v", name, err), metav1.StatusReasonInternalError
	case tier.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("tier %s is going", name), metav1.StatusReasonForbidden
	}
	return "", ""
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
