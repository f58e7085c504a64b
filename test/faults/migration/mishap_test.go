package migration_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/harness"
)

// expire answers a list that goes on with "410 Gone", as after a compaction: with the
// token that the API server gives to those who can do with what is there now, or without.
func expire(withToken bool) faults.Fault {
	return func(t *faults.Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		token := req.URL.Query().Get("continue")
		if token == "" {
			return next.RoundTrip(req)
		}
		if !withToken {
			return faults.Expired("")(t, req, next)
		}
		return faults.Expired(latest(token))(t, req, next)
	}
}

// latest is the token that goes on at the same place with what is there now.
func latest(token string) string {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return token
	}
	fields["rv"] = -1
	text, err = json.Marshal(fields)
	if err != nil {
		return token
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// A snapshot that etcd has forgotten between two pages of a list costs another list, and
// no object is skipped or copied twice.
func TestCompaction(t *testing.T) {
	allOnly(t)
	w := *shared.Lend(t)
	file, err := os.ReadFile(filepath.Join("..", "..", "..", "resources", "kinds.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^(  - \{kind: \w+,)`).ReplaceAllString(string(file), "$1 list: {pageSize: 4},")
	registry, err := resources.LoadRegistry("kinds.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	scene := *w.Setup
	scene.Registry = registry
	w.Setup = &scene
	for name, withToken := range map[string]bool{"compacted between pages, with a token": true, "compacted between pages, without": false} {
		t.Run(name, func(t *testing.T) {
			of, dice := report.Of(name), random(3)
			for range sampleOf(1, 10) {
				// Without a token, what was read is worth nothing, and the step begins again.
				in := func(int) *faults.Transport {
					rule := &faults.Rule{When: faults.Requests("list", "*"), Times: faults.Always, Share: 0.2, Do: expire(withToken)}
					if !withToken {
						rule.Nth, rule.Times, rule.Share = 1+dice.IntN(400), 20, 0
					}
					return faults.Seeded(dice.Uint64(), rule)
				}
				j := w.begin(t)
				begun := time.Now()
				j.survive(in, atGate)
				j.check(invariants.AtGate)
				j.back(in)
				of.Ran(!t.Failed(), time.Since(begun))
			}
		})
	}
}

// beforeLock is for what happens to v1 before the nth write of its lock: the first closes it, the second has it shut.
func beforeLock(nth int, do func()) lives {
	return func(int) *faults.Transport {
		return faults.New(&faults.Rule{When: faults.Requests("patch", "clusterinformations"), Nth: nth, Do: faults.Before(do)})
	}
}

// What is written to v1 up to the lock is migrated as it is then, as is what another client has begun when v1 says that
// it is not ready, and writes then: no fence refuses it yet.
func TestWrittenBeforeTheLock(t *testing.T) {
	w := shared.Lend(t)
	set := w.v1Object("GlobalNetworkSet", "blocklist-3")
	for nth, name := range []string{"v1 is written right before it closes", "v1 is written while it closes"} {
		if nth == 0 && !everything {
			continue
		}
		t.Run(name, func(t *testing.T) {
			write := func() {
				change := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"nets":["203.0.113.7%d/32"]}}`, nth))
				if err := w.Client.Patch(t.Context(), set, change); err != nil {
					t.Error(err)
				}
				w.again(t, equality.Key{Kind: set.GetKind(), Name: set.GetName()})
			}
			j := w.begin(t)
			begun := time.Now()
			if came, _ := j.survive(beforeLock(1+nth, write), atGate); !came {
				t.Fatal("v1 was not locked")
			}
			j.check(invariants.AtGate)
			j.back(healthy)
			report.Of(name).Ran(!t.Failed(), time.Since(begun))
		})
	}
}

// again takes what both sides hold of an object now for what has to be kept.
func (w *world) again(t *testing.T, key equality.Key) {
	t.Helper()
	now, err := w.eye.Look(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	resources.DropBarrier(now.V1[key]) // what is to be kept is without our notes
	if len(now.V1[key].GetAnnotations()) == 0 {
		now.V1[key].SetAnnotations(nil)
	}
	w.expect(func(v1, v3 equality.Side) { v1[key], v3[key] = now.V1[key], now.V3[key] })
}

// expect changes what has to be kept of both sides.
func (w *world) expect(change func(v1, v3 equality.Side)) {
	before := *w.before
	before.V1, before.V3 = maps.Clone(before.V1), maps.Clone(before.V3)
	change(before.V1, before.V3)
	w.before = &before
}

// An object that goes while everything is copied, as the garbage collector may decide at
// any time, is not brought back.
func TestDeletedWhileCopied(t *testing.T) {
	allOnly(t)
	const name = "an object goes between list and copy"
	w := shared.Lend(t)
	kind, _ := w.Registry.Kind("GlobalNetworkSet")
	key := equality.Key{Kind: kind.Name(), Name: "blocklist-5"}
	collector := w.as(t, "system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccounts", "system:masters")
	j := w.begin(t)
	begun := time.Now()
	came, _ := j.survive(func(int) *faults.Transport {
		return faults.New(&faults.Rule{When: faults.Requests("create", kind.V3Plural()), Do: faults.Before(func() {
			if err := collector.Delete(t.Context(), w.v1Object(key.Kind, key.Name)); err != nil {
				t.Error(err)
			}
			w.expect(func(v1, v3 equality.Side) {
				delete(v1, key)
				delete(v3, key)
			})
		})})
	}, atGate)
	if !came {
		t.Fatal("nothing was copied")
	}
	j.check(invariants.AtGate)
	j.back(healthy)
	report.Of(name).Ran(!t.Failed(), time.Since(begun))
}

// What is in a namespace that is deleted in the middle can neither be copied nor is it
// needed: the migration waits until it has gone from v1, and fails for nothing.
func TestNamespaceEnds(t *testing.T) {
	const name = "a namespace ends between list and copy"
	w := shared.Lend(t)
	kind, _ := w.Registry.Kind("NetworkSet")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}
	set := w.v1Object(kind.Name(), "doomed")
	set.SetNamespace(namespace.Name)
	for _, obj := range []client.Object{namespace, set} {
		if err := w.Client.Create(t.Context(), obj.DeepCopyObject().(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	j := w.begin(t)
	begun := time.Now()
	came, _ := j.survive(func(int) *faults.Transport {
		return faults.New(&faults.Rule{When: faults.Requests("create", kind.V3Plural()), Do: faults.Before(func() {
			if err := w.Client.Delete(t.Context(), namespace); err != nil {
				t.Error(err)
			}
		})})
	}, atGate)
	if !came {
		t.Fatal("nothing was copied")
	}
	harness.Eventually(t, "the end of the namespace", func() error {
		err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
		if apierrs.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is still there"))
	})
	j.check(invariants.AtGate)
	j.back(healthy)
	report.Of(name).Ran(!t.Failed(), time.Since(begun))
}

// refusals keep an object from being created in v3, for a reason that only the API
// server knows.
var refusals = map[string]struct {
	by    func() []client.Object
	names string
	// settles is how long it takes until it refuses.
	settles time.Duration
}{
	"a quota is exhausted": {names: "NetworkSet shop/", by: func() []client.Object {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "none"}}
		quota.Spec.Hard = corev1.ResourceList{"count/networksets.projectcalico.org": resource.MustParse("0")}
		return []client.Object{quota}
	}},
	"one object is refused": {names: "GlobalNetworkSet blocklist-7", by: func() []client.Object {
		meta := metav1.ObjectMeta{Name: "not-blocklist-7"}
		rule := admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{resources.V3Group}, APIVersions: []string{"*"}, Resources: []string{"globalnetworksets"}}}
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
			Validations:      []admissionv1.Validation{{Expression: "object.metadata.name != 'blocklist-7'"}},
		}}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
		return []client.Object{policy, binding}
	}, settles: 3 * time.Second},
}

// An object that the API server refuses is named while nothing is locked, and the migration goes on when it is refused
// no longer.
func TestRefused(t *testing.T) {
	w := shared.Lend(t)
	for name, tc := range refusals {
		if tc.settles > 0 && !everything {
			continue
		}
		t.Run(name, func(t *testing.T) {
			by := tc.by()
			forAll(t, by, func(obj client.Object) error { return w.Client.Create(t.Context(), obj) })
			settled := time.After(tc.settles)
			<-settled // nobody tells when a policy has taken hold of every API server
			j := w.begin(t)
			begun := time.Now()
			j.survive(healthy, func(dm *migration) bool { return dm != nil && strings.Contains(dm.Status.Message, tc.names) })
			if status := w.read().Status; status.Machine.Phase != "Pending" || status.DatastoreLockedAt != nil {
				t.Errorf("it is in phase %s, locked at %v, and says %q: it does not name %s before the lock",
					status.Machine.Phase, status.DatastoreLockedAt, status.Message, tc.names)
			}
			forAll(t, by, func(obj client.Object) error { return w.Client.Delete(t.Context(), obj) })
			j.survive(healthy, atGate)
			j.check(invariants.AtGate)
			j.back(healthy)
			report.Of(name).Ran(!t.Failed(), time.Since(begun))
		})
	}
}

func forAll(t *testing.T, objs []client.Object, do func(client.Object) error) {
	t.Helper()
	for _, obj := range objs {
		if err := do(obj); err != nil {
			t.Fatal(err)
		}
	}
}

// as is a client with another identity.
func (w *world) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(w.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{Scheme: w.Client.Scheme(), Mapper: w.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) v1Object(kind, name string) *unstructured.Unstructured {
	known, _ := w.Registry.Kind(kind)
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(known.V1GVK())
	obj.SetName(name)
	return obj
}
