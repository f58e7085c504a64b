package mcpserver

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// refServer names a configuration of each kind.
func refServer(change ...func(*server)) *server {
	return described("Ready", metav1.ConditionTrue, append([]func(*server){func(s *server) {
		s.Spec.ToolConfigRef, s.Spec.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "tools"}, &v1beta1.LocalRef{Name: "auth"}
		s.Status.Conditions = nil
	}}, change...)...)
}

func config(kind, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion("toolhive.stacklok.dev/v1beta1")
	obj.SetKind(kind)
	obj.SetNamespace("tools")
	obj.SetName(name)
	return obj
}

// worldOf has a server and what is beside it; fails is what each read of a configuration fails with, or nil.
func worldOf(srv *server, fails error, beside ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(append(beside, srv)...).WithStatusSubresource(srv).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if _, custom := obj.(*unstructured.Unstructured); custom && fails != nil {
				return fails
			}
			return w.Get(ctx, key, obj, o...)
		}}).Build()
}

func TestResolveRefs(t *testing.T) {
	const hash = "9e8a4b7c2d6f0e13"
	absentTool := seen{"ToolConfigRefValidated", "False", "ToolConfigRefNotFound", "MCPToolConfig tools is not in namespace tools: create it, or remove the reference"}
	absentAuth := seen{"ExternalAuthConfigValidated", "False", "ExternalAuthConfigRefNotFound", "MCPExternalAuthConfig auth is not in namespace tools: create it, or remove the reference"}
	known := func(s *server) {
		s.Status.ToolConfigHash = hash
		s.Status.Conditions = []metav1.Condition{{Type: "ToolConfigRefValidated", Status: metav1.ConditionTrue, Reason: "ToolConfigRefValid", Message: "as before"}}
	}
	kind := schema.GroupKind{Group: "toolhive.stacklok.dev", Kind: "MCPToolConfig"}
	cases := map[string]struct {
		why     string
		srv     *server
		configs []client.Object
		// fails is what each read fails with.
		fails error
		// says is the class of the error that comes out; then nothing is reported.
		says error

		tool, auth string
		conditions []seen
	}{
		"both there": {why: "the hash is of the spec alone", srv: refServer(),
			configs: []client.Object{config("MCPToolConfig", "tools", map[string]any{"b": int64(1), "a": "x"}), config("MCPExternalAuthConfig", "auth", nil)},
			tool:    "cdab067e9f3beb32", auth: "74234e98afe7498f",
			conditions: []seen{
				{"ToolConfigRefValidated", "True", "ToolConfigRefValid", "MCPToolConfig tools has hash cdab067e9f3beb32"},
				{"ExternalAuthConfigValidated", "True", "ExternalAuthConfigValid", "MCPExternalAuthConfig auth has hash 74234e98afe7498f"}}},
		"not there": {why: "told, and nobody is kept from running", srv: refServer(), conditions: []seen{absentTool, absentAuth}},
		"gone":      {why: "an old hash would tell that it is still there", srv: refServer(known), conditions: []seen{absentTool, absentAuth}},
		"kind not installed": {why: "as if it was not there", srv: refServer(known), conditions: []seen{absentTool, absentAuth},
			fails: &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1beta1"}}},
		"kind missing in discovery": {why: "one group that is not served must not fail the pass", srv: refServer(), conditions: []seen{absentTool, absentAuth},
			fails: new(apiutil.ErrResourceDiscoveryFailed{kind.WithVersion("v1beta1").GroupVersion(): apierrs.NewNotFound(schema.GroupResource{}, "v1beta1")})},
		"no references any more": {why: "what does not apply goes", srv: refServer(known, func(s *server) { s.Spec.ToolConfigRef, s.Spec.ExternalAuthConfigRef = nil, nil })},

		"server busy": {why: "nobody knows whether it is there: what is known stays", srv: refServer(known), fails: errBusy, says: errBusy},
		"forbidden":   {why: "a missing right is not a missing object", srv: refServer(known), fails: errDenied, says: errDenied},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			srv := c.srv
			world := worldOf(srv, c.fails, c.configs...)
			before := srv.DeepCopy()
			_, err := do(t.Context(), world, srv, "ResolveRefs")
			if !errors.Is(err, c.says) {
				t.Fatalf("%s: error = %v, want %v", c.why, err, c.says)
			}
			now := &server{}
			if err := world.Get(t.Context(), client.ObjectKeyFromObject(srv), now); err != nil {
				t.Fatal(err)
			}
			if c.says != nil {
				if diff := cmp.Diff(before.Status, now.Status); diff != "" {
					t.Errorf("%s (-before +after):\n%s", c.why, diff)
				}
				return
			}
			if diff := cmp.Diff([]string{c.tool, c.auth}, []string{now.Status.ToolConfigHash, now.Status.ExternalAuthConfigHash}); diff != "" {
				t.Errorf("%s: hashes (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(c.conditions, notable(now)); diff != "" {
				t.Errorf("%s: conditions (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

var (
	errBusy   = apierrs.NewTooManyRequests("later", 1)
	errDenied = apierrs.NewForbidden(schema.GroupResource{}, "tools", nil)
)

// withStatus is a configuration with a status that another controller writes; observed 0 stands for none.
func withStatus(obj *unstructured.Unstructured, generation, observed int64, status map[string]any) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	obj.SetGeneration(generation)
	if observed != 0 {
		status["observedGeneration"] = observed
	}
	obj.Object["status"] = status
	return obj
}

// The peer's controllers tell the hash of a configuration in its status, and servers repeat
// it there. Where they run, the hashes are theirs.
func TestHashOfIsTheOneThatIsTold(t *testing.T) {
	plain := config("MCPToolConfig", "tools", map[string]any{"a": "x"})
	own, err := hashOf(plain)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		why      string
		observed int64
		hash     string
		want     string
	}{
		"of this spec": {"one hash for one content", 3, "5d41402a", "5d41402a"},
		"of an older":  {"it would hide the change", 2, "5d41402a", own},
		"of none":      {"their controllers do not run", 3, "", own},
		"of any":       {"the writer counts no generations", 0, "5d41402a", "5d41402a"},
	} {
		got, err := hashOf(withStatus(plain, 3, c.observed, map[string]any{"configHash": c.hash}))
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s: %s", name, got, err, c.want, c.why)
		}
	}
}

// TestWhatReferencesLeadTo holds types, statuses and reasons to those of the peer, for what is
// looked at whichever program the proxies run.
func TestWhatReferencesLeadTo(t *testing.T) {
	group := func(s *server) { s.Spec.GroupRef = text(`{"name":"team"}`) }
	authServer := func(ref string) func(*server) { return func(s *server) { s.Spec.AuthServerRef = text(ref) } }
	ofType := func(kind string, upstreams ...any) *unstructured.Unstructured {
		return config("MCPExternalAuthConfig", "as", map[string]any{"type": kind, "embeddedAuthServer": map[string]any{"upstreamProviders": upstreams}})
	}
	team := func(status map[string]any) *unstructured.Unstructured {
		return withStatus(config("MCPGroup", "team", nil), 1, 1, status)
	}
	externalAuth := func(s *server) { s.Spec.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "as"} }
	invalid := func(observed int64) *unstructured.Unstructured {
		return withStatus(ofType("obo"), 2, observed, map[string]any{"conditions": []any{
			map[string]any{"type": "Valid", "status": "False", "reason": "EnterpriseRequired", "message": "not in this build"}}})
	}
	// seen is what the condition itself says of the generation; 0 stands for nothing.
	since := func(observed, seen int64) *unstructured.Unstructured {
		obj := invalid(observed)
		condition := obj.Object["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
		if seen != 0 {
			condition["observedGeneration"] = seen
		}
		return obj
	}
	const groups, servers, auths = "GroupRefValidated", "AuthServerRefValidated", "ExternalAuthConfigValidated"
	for name, c := range map[string]struct {
		why    string
		change func(*server)
		there  *unstructured.Unstructured
		want   seen
	}{
		"group": {"it is there and ready", group, team(map[string]any{"phase": "Ready"}),
			seen{groups, "True", "GroupRefIsValid", "MCPGroup team is there and ready"}},
		"no group": {"told, and nobody is kept from running", group, nil,
			seen{groups, "False", "GroupRefNotFound", "MCPGroup team is not in namespace tools: create it, or remove the reference"}},
		"group that waits": {"it has a phase of its own", group, team(map[string]any{"phase": "Pending"}),
			seen{groups, "False", "GroupRefNotReady", `MCPGroup team is in phase "Pending": it is to be Ready`}},
		"group of nobody": {"nobody has looked at it", group, team(map[string]any{}),
			seen{groups, "False", "GroupRefNotReady", `MCPGroup team is in phase "": it is to be Ready`}},
		"auth server": {"it is one", authServer(`{"kind":"MCPExternalAuthConfig","name":"as"}`), withStatus(ofType("embeddedAuthServer", "a"), 1, 1, map[string]any{"configHash": "77"}),
			seen{servers, "True", "AuthServerRefValid", "MCPExternalAuthConfig as has hash 77"}},
		"no auth server": {"nobody would issue tokens", authServer(`{"name":"as"}`), nil,
			seen{servers, "False", "AuthServerRefNotFound", "MCPExternalAuthConfig as is not in namespace tools: create it, or remove the reference"}},
		"auth server of another kind": {"the kind decides before the name", authServer(`{"kind":"Secret","name":"as"}`), nil,
			seen{servers, "False", "AuthServerRefInvalidKind", "spec.authServerRef names a Secret: only MCPExternalAuthConfig is known"}},
		"auth server that is none": {"it is for something else", authServer(`{"name":"as"}`), ofType("tokenExchange"),
			seen{servers, "False", "AuthServerRefInvalidType", `spec.authServerRef: MCPExternalAuthConfig as is of type "tokenExchange": write embeddedAuthServer`}},
		"auth server of two": {"a server has one", authServer(`{"name":"as"}`), ofType("embeddedAuthServer", "a", "b"),
			seen{servers, "False", "MultiUpstreamNotSupported", "spec.authServerRef: MCPExternalAuthConfig as has 2 upstream providers: an MCPServer can have one"}},
		"external auth that is not valid": {"the reason is repeated", externalAuth, invalid(2),
			seen{auths, "False", "EnterpriseRequired", "MCPExternalAuthConfig as is not valid, as its status says: not in this build"}},
		"external auth that has become invalid": {"the peer counts a generation on the condition alone, while the spec is invalid", externalAuth, since(1, 2),
			seen{auths, "False", "EnterpriseRequired", "MCPExternalAuthConfig as is not valid, as its status says: not in this build"}},
		"external auth that never was valid": {"as before", externalAuth, since(0, 2),
			seen{auths, "False", "EnterpriseRequired", "MCPExternalAuthConfig as is not valid, as its status says: not in this build"}},
		"external auth without generations": {"the writer counts none", externalAuth, since(0, 0),
			seen{auths, "False", "EnterpriseRequired", "MCPExternalAuthConfig as is not valid, as its status says: not in this build"}},
		"external auth that was not valid for a while": {"the condition is of an older spec", externalAuth, since(2, 1),
			seen{auths, "True", "ExternalAuthConfigValid", "MCPExternalAuthConfig as has hash 76e7a67f1fbdef25"}},
		"external auth that was not valid": {"the spec has changed since", externalAuth, invalid(1),
			seen{auths, "True", "ExternalAuthConfigValid", "MCPExternalAuthConfig as has hash 76e7a67f1fbdef25"}},
	} {
		srv := described("Ready", metav1.ConditionTrue, c.change, func(s *server) { s.Status.Conditions = nil })
		var there []client.Object
		if c.there != nil {
			there = append(there, c.there)
		}
		world := worldOf(srv, nil, there...)
		for _, flavour := range Flavours {
			found, err := (&steps{Settings: Settings{Proxy: flavour}, client: world}).findings(t.Context(), srv)
			if err != nil {
				t.Fatal(err)
			}
			now := srv.DeepCopy()
			for _, f := range found {
				f.tell(now)
			}
			if diff := cmp.Diff([]seen{c.want}, seenOf(now)); diff != "" {
				t.Errorf("%s, %s: %s (-want +got):\n%s", name, flavour, c.why, diff)
			}
		}
	}
}

// Of what the proxy is made from, the status tells that it cannot be read, with ToolHive's reasons: a condition that it is
// valid would be believed.
func TestReferencesThatCannotBeRead(t *testing.T) {
	for name, change := range map[string]func(*server){
		"OIDCConfigRef":      func(s *server) { s.Spec.OIDCConfigRef = text(`{"name":"a","audience":"x"}`) },
		"AuthzConfigRef":     func(s *server) { s.Spec.AuthzConfigRef = text(`{"name":"a"}`) },
		"TelemetryConfigRef": func(s *server) { s.Spec.TelemetryConfigRef = text(`{"name":"a"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := described("Ready", metav1.ConditionTrue, change, func(s *server) {
				s.Status.Conditions = []metav1.Condition{{Type: name + "Validated", Status: metav1.ConditionTrue, Reason: name + "Valid", Message: "of before"}}
			})
			_, err := (&steps{Settings: theirs, client: worldOf(srv, errBusy)}).toolHive(t.Context(), srv)
			if !errors.Is(err, errBusy) {
				t.Fatalf("error = %v, want %v", err, errBusy)
			}
			now := srv.DeepCopy()
			tellUnread(now, err) // as resolveRefs reports
			c := meta.FindStatusCondition(now.Status.Conditions, name+"Validated")
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != name+"Error" {
				t.Errorf("the condition is %+v, want False with %sError", c, name)
			}
		})
	}
}
