package builtin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
)

// privateKey is what a CA gives out once.
const privateKey = "-----BEGIN PRIVATE KEY-----\nMIIBVQIBADANBgkqhkiG\n-----END PRIVATE KEY-----\n"

// issuer is a CA that answers as its path says: what it is asked to say.
func issuer(t *testing.T) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// outputsOf is the Secret of a plan with its secret outputs; nil where there is none.
func outputsOf(t *testing.T, c client.Client, namespace string, p *plan) *corev1.Secret {
	t.Helper()
	found := &corev1.Secret{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.MachineStateName(runner.OnceMachine, p.UID)}, found)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return found
}

// Fault: the private key in an answer was in status.machine.result, and in the MachineState.
func TestSecretOutputs(t *testing.T) {
	at := issuer(t)
	answer, err := json.Marshal(map[string]any{"data": map[string]any{"key": privateKey, "chain": []any{"one", "two"}, "serial": json.Number("12345678901234567890"), "none": nil}})
	if err != nil {
		t.Fatal(err)
	}
	result := func(status int64) map[string]any {
		return map[string]any{"status": status, "body": "", "truncated": false}
	}
	cases := map[string]struct {
		why        string
		path, body string
		outputs    map[string]any
		kept       map[string]string
		out        map[string]any
		err        string
	}{
		"parts": {why: "each under its name; what is no text is JSON", body: string(answer),
			outputs: map[string]any{"key": "body.data.key", "chain": "body.data.chain", "root": "body.data.chain.1", "serial": "body.data.serial"},
			kept:    map[string]string{"key": privateKey, "chain": `["one","two"]`, "root": "two", "serial": "12345678901234567890"}, out: result(200)},
		"whole": {why: "it need not be JSON", body: "plain", outputs: map[string]any{"all": "body"}, kept: map[string]string{"all": "plain"}, out: result(200)},
		"large": {why: "a chain of certificates is longer than what a status may hold", body: strings.Repeat("x", 200<<10), outputs: map[string]any{"all": "body"},
			kept: map[string]string{"all": strings.Repeat("x", 200<<10)}, out: result(200)},
		"refused":    {why: "the machine looks at the status, and the reason may be as secret", path: "/refused", body: string(answer), outputs: map[string]any{"key": "body.data.key"}, out: result(403)},
		"not yet":    {why: "a server may answer before it has signed", body: `{"data":{}}`, outputs: map[string]any{"key": "body.data.key"}, err: "waits"},
		"null":       {why: "the same", body: string(answer), outputs: map[string]any{"none": "body.data.none"}, err: "waits"},
		"no JSON":    {why: "the same", body: privateKey, outputs: map[string]any{"key": "body.data.key"}, err: "waits"},
		"too large":  {why: "memory is bounded", body: strings.Repeat("x", 300<<10), outputs: map[string]any{"all": "body"}, err: "TooLarge"},
		"no path":    {why: "a typo would wait for ever", outputs: map[string]any{"key": "data.key"}, err: "BadParameter"},
		"no name":    {why: "it could not be referred to", outputs: map[string]any{"tls.key": "body"}, err: "BadParameter"},
		"none":       {why: "nothing would be kept", outputs: map[string]any{}, err: "BadParameter"},
		"an element": {why: "beyond the list", body: string(answer), outputs: map[string]any{"root": "body.data.chain.2"}, err: "waits"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			with := params{"url": at.String() + c.path, "method": "POST", "body": "see below", "secretOutputs": c.outputs}
			at := at
			if len(c.body) > 60<<10 { // more than a request may have
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.body) }))
				t.Cleanup(s.Close)
				at, _ = url.Parse(s.URL)
				with["url"] = s.URL
			} else {
				with["body"] = c.body
			}
			out, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p, with)
			if got := reasonOf(err); got != c.err || err != nil && strings.Contains(err.Error(), "PRIVATE") {
				t.Fatalf("%s: got %v, want %q", c.why, err, c.err)
			}
			if diff := cmp.Diff(c.out, out); diff != "" {
				t.Errorf("%s: outputs (-want +got):\n%s", c.why, diff)
			}
			var kept map[string]string
			if s := outputsOf(t, world, p.Namespace, p); s != nil {
				kept = map[string]string{}
				for key, value := range s.Data {
					kept[key] = string(value)
				}
			}
			if diff := cmp.Diff(c.kept, kept); diff != "" {
				t.Errorf("%s: kept (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// One Secret has the outputs of all steps. It belongs to the state, and a repeat leaves it as it is.
func TestTheSecretOfAState(t *testing.T) {
	world, p := plansFor(t)
	at := issuer(t)
	keep := func(step string, outputs map[string]any) {
		t.Helper()
		_, err := actAs(t, builtin.Options{Client: world, HTTP: local(at.Host)}, step, "HTTPRequest", p,
			params{"url": at.String(), "method": "POST", "body": map[string]any{"a": "one", "b": "two"}, "secretOutputs": outputs})
		if err != nil {
			t.Fatal(err)
		}
	}
	keep("First", map[string]any{"a": "body.a", "old": "body.b"})
	keep("Second", map[string]any{"b": "body.b"})
	before := outputsOf(t, world, p.Namespace, p)
	keep("Second", map[string]any{"b": "body.b"}) // after a crash, or a lost answer
	keep("First", map[string]any{"a": "body.a"})  // of another revision
	s := outputsOf(t, world, p.Namespace, p)
	if diff := cmp.Diff(map[string][]byte{"a": []byte("one"), "b": []byte("two")}, s.Data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	state := &v1alpha1.MachineState{}
	if err := world.Get(t.Context(), client.ObjectKey{Name: s.Name}, state); err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: v1alpha1.APIVersion, Kind: "MachineState", Name: state.Name, UID: state.UID}}
	if diff := cmp.Diff(want, s.OwnerReferences); diff != "" || s.UID != before.UID {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if text := fmt.Sprint(state.Status.Saved); strings.Contains(text, "one") || strings.Contains(text, "two") {
		t.Errorf("the state says %s", text)
	}
}

// What somebody else has put where the Secret belongs is neither overwritten nor believed.
func TestASecretOfSomebodyElse(t *testing.T) {
	world, p := plansFor(t)
	at, seen := echo(t)
	secretOf(t, world, p.Namespace, v1alpha1.MachineStateName(runner.OnceMachine, p.UID), map[string]string{"key": "theirs"})
	o := builtin.Options{Client: world, HTTP: local(at.Host)}
	_, err := actWith(t, o, "HTTPRequest", p, params{"url": at.String(), "secretOutputs": map[string]any{"key": "body"}})
	if reasonOf(err) != "NotOurs" {
		t.Errorf("got %v, want a refusal", err)
	}
	*seen = nil
	_, err = actWith(t, o, "HTTPRequest", p, params{"url": at.String(), "headers": map[string]any{"Authorization": map[string]any{"secretOutput": "key"}}})
	if err == nil || !strings.Contains(err.Error(), "secret output key cannot be read") || len(*seen) > 0 {
		t.Errorf("got %v, asked with %v", err, *seen)
	}
}

// An object without a namespace says where its outputs are kept, once.
func TestSecretOutputsOfAClusterScopedObject(t *testing.T) {
	world, p := plansFor(t)
	at, seen := echo(t)
	c, site := asSite(t, p.Namespace)
	ask := builtin.Actions[*plan](builtin.Options{Client: c, HTTP: local(at.Host)})["HTTPRequest"]
	for _, try := range []struct {
		with params
		want string
	}{
		{params{"secretOutputs": map[string]any{"all": "body"}}, "NamespaceMissing"},
		{params{"secretOutputs": map[string]any{"all": "body"}, "namespace": p.Namespace, "body": "mine"}, ""},
		{params{"secretOutputs": map[string]any{"all": "body"}, "namespace": "default"}, "SecretElsewhere"},
		{params{"body": map[string]any{"secretOutput": "all"}}, ""},
	} {
		if _, err := runner.Once(t.Context(), c, site, ask, and(params{"url": at.String()}, try.with), clocktesting.NewFakeClock(noon)); reasonOf(err) != try.want {
			t.Errorf("%v: got %v, want %q", try.with, err, try.want)
		}
	}
	if got := (*seen)[len(*seen)-1].Body; got != " mine" {
		t.Errorf("sent %q, want what was kept", got)
	}
	if outputsOf(t, world, p.Namespace, site) == nil {
		t.Error("it is not in the namespace that was given")
	}
}

// A manifest of kind Secret takes values, as data that a later apply can remove.
func TestApplySecrets(t *testing.T) {
	world, p := plansFor(t)
	secretOf(t, world, p.Namespace, "ca", map[string]string{"token": "\xff\x00binary"})
	at := issuer(t)
	o := builtin.Options{Client: world, HTTP: local(at.Host)}
	if _, err := actWith(t, o, "HTTPRequest", p, params{"url": at.String(), "method": "POST", "body": privateKey, "secretOutputs": map[string]any{"key": "body"}}); err != nil {
		t.Fatal(err)
	}
	tls := func(texts map[string]any) params {
		return params{"manifest": content("v1", "Secret", "tls", map[string]any{"stringData": texts, "data": map[string]any{"own": base64.StdEncoding.EncodeToString([]byte("own"))}})}
	}
	output := func(name string) map[string]any { return map[string]any{"secretOutput": name} }
	for _, try := range []struct {
		why   string
		texts map[string]any
		want  map[string][]byte
		err   string
	}{
		{why: "values of both kinds, and what is written", texts: map[string]any{"tls.key": output("key"), "ca": secret("ca", "token"), "plain": "text"},
			want: map[string][]byte{"tls.key": []byte(privateKey), "ca": []byte("\xff\x00binary"), "plain": []byte("text"), "own": []byte("own")}},
		{why: "what a later revision leaves out goes", texts: map[string]any{"tls.key": output("key")},
			want: map[string][]byte{"tls.key": []byte(privateKey), "own": []byte("own")}},
		{why: "nothing is written without one of them", texts: map[string]any{"tls.key": output("kez")}, err: "has no key kez",
			want: map[string][]byte{"tls.key": []byte(privateKey), "own": []byte("own")}},
	} {
		if _, err := actWith(t, o, "Apply", p, tls(try.texts)); (err == nil) != (try.err == "") || err != nil && !strings.Contains(err.Error(), try.err) {
			t.Fatalf("%s: %v", try.why, err)
		}
		got := &corev1.Secret{}
		if err := world.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "tls"}, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(try.want, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", try.why, diff)
		}
	}
}
