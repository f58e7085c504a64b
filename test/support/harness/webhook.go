package harness

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mutate registers a mutating webhook for what is written in a namespace until the test ends, and returns when it is in
// force. mutate changes an object in place; it is called at each write, also at those of others.
func (c *Cluster) Mutate(t testing.TB, namespace string, mutate func(object map[string]any)) {
	t.Helper()
	var asked atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		var err error
		if response.Patch, err = patchOf(review.Request.Object.Raw, mutate); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
		review.Request, review.Response = nil, response
		_ = json.NewEncoder(w).Encode(review) // a client that is gone misses nothing
	}))
	t.Cleanup(server.Close)

	none, fail := registrationv1.SideEffectClassNone, registrationv1.Fail
	webhook := &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{GenerateName: "mutate-"}, Webhooks: []registrationv1.MutatingWebhook{{
		Name: "mutate.phasegate.dev", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: registrationv1.WebhookClientConfig{
			URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		Rules: []registrationv1.RuleWithOperations{{
			Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
			Rule:       registrationv1.Rule{APIGroups: []string{"", "apps", "rbac.authorization.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"*"}},
		}},
	}}}
	if err := c.Client.Create(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client.Delete(context.Background(), webhook); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "the webhook to be in force", func() error {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "webhook-probe"}}
		if err := c.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		if !asked.Load() {
			return errors.New("it has not been asked")
		}
		return nil
	})
}

// patchOf replaces the parts of an object that mutate changes.
func patchOf(object []byte, mutate func(map[string]any)) ([]byte, error) {
	before, after := map[string]json.RawMessage{}, map[string]any{}
	if err := errors.Join(json.Unmarshal(object, &before), json.Unmarshal(object, &after)); err != nil {
		return nil, err
	}
	mutate(after)
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{}
	for part := range before {
		patch = append(patch, operation{"replace", "/" + part, after[part]})
	}
	return json.Marshal(patch)
}
