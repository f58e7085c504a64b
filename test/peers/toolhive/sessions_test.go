package toolhive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/sessions"
)

// TestReal holds what a user of ToolHive has, and must have here as well.
func TestReal(t *testing.T) {
	w := newWorld(t)
	sessions.Plain(t, func(t *testing.T) *sessions.Place { return w.on(t).place() })
	t.Run("protected", func(t *testing.T) { w.on(t).protected() })
	t.Run("authorization server", func(t *testing.T) { w.on(t).authorizing() })
	t.Run("encrypted store", func(t *testing.T) { w.on(t).encrypted() })
	t.Run("a header that is not sent", func(t *testing.T) { w.on(t).unsent() })
	t.Run("tools", func(t *testing.T) { w.on(t).tools() })
	t.Run("a reference to nothing", func(t *testing.T) { w.on(t).missing() })
	t.Run("rights", func(t *testing.T) { w.on(t).noRightIsMissing(w.logs()...) })
	t.Run("there and back", func(t *testing.T) { w.on(t).thereAndBack() })
}

// on is the world for a part of the test.
func (w *world) on(t *testing.T) *world {
	return &world{T: t, Cluster: w.Cluster, pods: w.pods, manager: w.manager, ns: w.ns, mu: w.mu, backends: w.backends, networks: w.networks}
}

// place is the world for the session tests that ours and theirs share.
func (w *world) place() *sessions.Place {
	return &sessions.Place{TB: w.T, Cluster: w.Cluster, Namespace: w.ns, Manager: w.manager, Pods: w.pods,
		Serve: func(name, transport string) { w.backend(name, transport) }}
}

// session is one of a client of streamable-http with a token.
func (w *world) session(address, token string) (*mcp.ClientSession, error) {
	return sessions.Open(w.Context(), address, v1beta1.TransportStreamableHTTP, token)
}

func (w *world) list(session *mcp.ClientSession) []string {
	w.Helper()
	names, err := sessions.Tools(w.Context(), session)
	if err != nil {
		w.Fatal(err)
	}
	return names
}

func (w *world) call(session *mcp.ClientSession, tool string, args map[string]any) (string, error) {
	return sessions.Call(w.Context(), session, tool, args)
}

// protected is a server with an issuer, policies and an audit log.
func (w *world) protected() {
	const name = "safe"
	issuer := newIssuer(w.T)
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.configure("MCPOIDCConfig", "idp", map[string]any{"type": "inline", "inline": map[string]any{
		"issuer": issuer.url, "insecureAllowHTTP": true, "jwksAllowPrivateIP": true}})
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) {
		s.OIDCConfigRef = raw(`{"name":"idp","audience":"safe"}`)
		s.AuthzConfig = raw(`{"type":"inline","inline":{"policies":[` +
			`"permit(principal, action == Action::\"call_tool\", resource == Tool::\"echo\");"]}}`)
		s.Audit = raw(`{"enabled":true}`)
	})
	w.awaitPhase(name, "Ready")
	address, process := w.proxy(name)

	for why, token := range map[string]string{
		"no token": "", "a token of another issuer": newIssuer(w.T).token("https://elsewhere", "safe"),
		"a token for another server": issuer.token(issuer.url, "other"), "a forged token": newIssuer(w.T).token(issuer.url, "safe"),
	} {
		if _, err := w.session(address, token); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
			w.Errorf("%s: %v, want that it is refused", why, err)
		}
	}
	session, err := w.session(address, issuer.token(issuer.url, "safe"))
	if err != nil {
		w.Fatalf("a good token: %v", err)
	}
	defer func() { _ = session.Close() }() // what is tested was seen
	if got, err := w.call(session, "echo", map[string]any{"text": "hello"}); got != "hello" || err != nil {
		w.Errorf("a tool that the policies permit: %q, %v", got, err)
	}
	if got, err := w.call(session, "add", map[string]any{"a": 1, "b": 2}); err == nil {
		w.Errorf("a tool that no policy permits: answered %q", got)
	}
	if diff := cmp.Diff([]string{"echo"}, w.list(session)); diff != "" {
		w.Errorf("tools that clients may call are listed (-want +got):\n%s", diff)
	}
	harness.Eventually(w, "an audit event of the call that was denied", func() error {
		return says(process, `"outcome":"denied"`, `"audit_id"`)
	})
}

// authorizing is a server whose proxy is an authorization server, too: a client registers itself, and is sent on to who
// knows the users.
func (w *world) authorizing() {
	const name, issuer, resource, login = "log-in", "http://as.example", "http://log-in.example", "http://idp.example/authorize"
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.configure("MCPOIDCConfig", "own", map[string]any{"type": "inline", "inline": map[string]any{"issuer": issuer, "insecureAllowHTTP": true, "jwksAllowPrivateIP": true}})
	w.configure("MCPExternalAuthConfig", "as", map[string]any{"type": "embeddedAuthServer", "embeddedAuthServer": map[string]any{
		"issuer": issuer, "insecureAllowHTTP": true, "registrationRateLimit": map[string]any{"maxTokens": int64(2), "refillPeriod": "24h"}, "upstreamProviders": []any{map[string]any{"name": "idp", "type": "oauth2", "oauth2Config": map[string]any{
			"authorizationEndpoint": login, "tokenEndpoint": "http://idp.example/token", "clientId": "c", "insecureAllowHTTP": true,
			"additionalTokenParams": map[string]any{"prompt": "none"}, "identityFromToken": map[string]any{"subjectPath": "sub"}, // no secret: the runner of pods puts none into variables
		}}}}})
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) {
		s.OIDCConfigRef = raw(`{"name":"own","audience":"` + resource + `","resourceUrl":"` + resource + `"}`)
		s.AuthServerRef = raw(`{"kind":"MCPExternalAuthConfig","name":"as"}`)
	})
	w.awaitPhase(name, "Ready")
	address, _ := w.proxy(name)
	if _, err := w.session(address, ""); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		w.Errorf("without a token: %v, want that it is refused", err)
	}
	var client struct {
		ID string `json:"client_id"`
	}
	const back = "http://127.0.0.1:1/back"
	const registration = `{"redirect_uris":["` + back + `"],"token_endpoint_auth_method":"none"}`
	w.register(address, registration, &client)
	query := url.Values{"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {back}, "resource": {resource}, "state": {"0123456789"},
		"code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"}}
	if at := newBrowser(w.T, address).leaves(issuer + "/oauth/authorize?" + query.Encode()); !strings.HasPrefix(at, login) {
		w.Errorf("a client that logs in is sent to %s, want %s", at, login)
	}
	w.limited(address, registration)
}

// register makes a client known to the authorization server at an address.
func (w *world) register(address, client string, into any) {
	w.Helper()
	answer, err := http.Post(address+"/oauth/register", "application/json", strings.NewReader(client))
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusCreated {
		w.Fatalf("register: %s, %v: %s", answer.Status, err, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		w.Fatalf("register: %v: %s", err, text)
	}
}

// says tells whether a line of a program has all parts.
func says(p *harness.Process, parts ...string) error {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return nil
		}
	}
	return fmt.Errorf("no line with %q", parts)
}

// tools is a server of which clients see one tool, under another name.
func (w *world) tools() {
	const name = "few"
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.configure("MCPToolConfig", "tools", map[string]any{"toolsFilter": []any{"say"},
		"toolsOverride": map[string]any{"echo": map[string]any{"name": "say", "description": "Says it."}}})
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) { s.ToolConfigRef = &v1beta1.LocalRef{Name: "tools"} })
	w.awaitPhase(name, "Ready")
	address, _ := w.proxy(name)
	session, err := w.session(address, "")
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = session.Close() }() // what is tested was seen
	if diff := cmp.Diff([]string{"say"}, w.list(session)); diff != "" {
		w.Errorf("tools/list (-want +got):\n%s", diff)
	}
	if got, err := w.call(session, "say", map[string]any{"text": "hello"}); got != "hello" || err != nil {
		w.Errorf("the tool under its new name: %q, %v", got, err)
	}
	if got, err := w.call(session, "add", map[string]any{"a": 1, "b": 2}); err == nil {
		w.Errorf("a tool that is filtered out: answered %q", got)
	}
}

// missing is a server without what it names: nothing runs unprotected, and it runs
// as soon as it is there.
func (w *world) missing() {
	const name = "early"
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) { s.OIDCConfigRef = raw(`{"name":"later","audience":"x"}`) })
	srv := w.awaitPhase(name, "Failed")
	c := meta.FindStatusCondition(srv.Status.Conditions, "OIDCConfigRefValidated")
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "OIDCConfigRefNotFound" {
		w.Errorf("condition: %+v", c)
	}
	if err := w.Client.Get(w.Context(), w.key(name), &appsv1.Deployment{}); !apierrs.IsNotFound(err) {
		w.Errorf("the Deployment: %v, want none", err)
	}
	w.configure("MCPOIDCConfig", "later", map[string]any{"type": "inline", "inline": map[string]any{"issuer": newIssuer(w.T).url, "insecureAllowHTTP": true, "jwksAllowPrivateIP": true}})
	w.awaitPhase(name, "Ready")
}

// thereAndBack changes the program under a server. What the one has made, the other could
// not work with.
func (w *world) thereAndBack() {
	const name = "turn"
	w.startManager("phasegate")
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.create(name, v1beta1.TransportStreamableHTTP, nil)
	w.awaitProxy(name, ourImage)
	w.startManager("toolhive")
	w.awaitProxy(name, theirImage)
	w.place().Converse(name, v1beta1.TransportStreamableHTTP)
	w.startManager("phasegate")
	w.awaitProxy(name, ourImage)
	// Not in the logs of proxies: one that starts again now has the rights of its successor.
	w.noRightIsMissing(w.manager.Log)
}

// awaitProxy waits until a server is Ready behind pods of an image, and those only.
func (w *world) awaitProxy(name, image string) {
	w.Helper()
	harness.Eventually(w, name+" behind "+image, func() error {
		list := &corev1.PodList{}
		if err := w.Client.List(w.Context(), list, client.InNamespace(w.ns), client.MatchingLabels(v1beta1.ProxyLabels(name))); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("no pods")
		}
		for _, pod := range list.Items {
			if got := pod.Spec.Containers[0].Image; got != image {
				return fmt.Errorf("pod %s runs %s", pod.Name, got)
			}
		}
		return nil
	})
	w.awaitPhase(name, "Ready")
}

// noRightIsMissing reads logs: the programs asked for no more than they may do.
func (w *world) noRightIsMissing(logs ...string) {
	w.Helper()
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			w.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(strings.ToLower(line), "forbidden: user") || strings.Contains(line, "is forbidden") {
				w.Errorf("%s: %s", log, line)
				break
			}
		}
	}
}

func raw(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
