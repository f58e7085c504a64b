package builtin_test

import (
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
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
)

// token is what nobody may read but the server that is asked.
const token = "t0ken-\"of\"-the-CA"

// authorized is what a server saw of a request with a secret in it.
type authorized struct{ Authorization, Body, Key string }

// echo answers with all that it was asked, as debug pages of servers do.
func echo(t *testing.T) (at *url.URL, seen *[]authorized) {
	t.Helper()
	seen = &[]authorized{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*seen = append(*seen, authorized{r.Header.Get("Authorization"), string(body), r.Header.Get("Idempotency-Key")})
		fmt.Fprintf(w, "%s %s", r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, seen
}

// secretOf is a Secret beside a plan.
func secretOf(t *testing.T, c client.Client, namespace, name string, data map[string]string) {
	t.Helper()
	if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data}); err != nil {
		t.Fatal(err)
	}
}

func secret(name, key string, more ...string) map[string]any {
	of := map[string]any{"name": name, "key": key}
	ref := map[string]any{"secret": of}
	for i := 0; i < len(more); i += 2 {
		if more[i] == "namespace" {
			of[more[i]] = more[i+1]
		} else {
			ref[more[i]] = more[i+1]
		}
	}
	return ref
}

// A reference in a header or a body is replaced on the wire, and nowhere else.
func TestSecretsInRequests(t *testing.T) {
	world, p := plansFor(t)
	secretOf(t, world, p.Namespace, "ca", map[string]string{"token": token, "line": token + "\n", "two": "a\nb"})
	at, seen := echo(t)
	header := func(value any) params { return params{"headers": map[string]any{"Authorization": value}} }
	cases := map[string]struct {
		why  string
		with params
		want authorized
		says string
		err  string
	}{
		"header": {why: "as it is", with: header(secret("ca", "token")), want: authorized{Authorization: token}, says: "(secret) "},
		"format": {why: "most servers want a word before it", with: header(secret("ca", "token", "format", "Bearer %s")),
			want: authorized{Authorization: "Bearer " + token}, says: "Bearer (secret) "},
		"of a file":  {why: "kubectl create secret --from-file keeps its last line break", with: header(secret("ca", "line")), want: authorized{Authorization: token}, says: "(secret) "},
		"whole body": {why: "text in place of text", with: params{"method": "POST", "body": secret("ca", "token")}, want: authorized{Body: token}, says: " (secret)"},
		"in a body": {why: "at any depth, and what only looks alike is left alone",
			with: params{"method": "POST", "body": map[string]any{"a": []any{map[string]any{"b": secret("ca", "token")}}, "secret": "no", "secretOutput": "no"}},
			want: authorized{Body: `{"a":[{"b":"t0ken-\"of\"-the-CA"}],"secret":"no","secretOutput":"no"}`},
			says: ` {"a":[{"b":"(secret)"}],"secret":"no","secretOutput":"no"}`},
		"own namespace": {why: "it may be said", with: header(secret("ca", "token", "namespace", p.Namespace)), want: authorized{Authorization: token}, says: "(secret) "},
		"elsewhere": {why: "whoever writes the plan may not read that namespace", with: header(secret("ca", "token", "namespace", "kube-system")),
			err: "SecretElsewhere"},
		"no Secret": {why: "it may come, and the machine may say where it leads",
			with: header(secret("none", "token")), err: "key token of Secret none cannot be read: there is no Secret " + p.Namespace + "/none: create it"},
		"no key":      {why: "the same", with: header(secret("ca", "tokem")), err: "key tokem of Secret ca cannot be read: Secret " + p.Namespace + "/ca has no key tokem: create it"},
		"two lines":   {why: "a header has one", with: header(secret("ca", "two")), err: "SecretUnusable"},
		"two formats": {why: "it is not clear what is meant", with: header(secret("ca", "token", "format", "%s%s")), err: "BadParameter"},
		"half":        {why: "it would be sent as it is written", with: params{"body": []any{map[string]any{"secret": map[string]any{"name": "ca"}}}}, err: "BadParameter"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			*seen = nil
			out, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p, and(params{"url": at.String()}, c.with))
			if got := reasonOf(err); got != c.err {
				t.Fatalf("%s: got %q, want %q", c.why, got, c.err)
			}
			if c.err != "" {
				if len(*seen) > 0 {
					t.Errorf("%s: asked all the same", c.why)
				}
				return
			}
			got := (*seen)[0]
			got.Key = ""
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: request (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(c.says, out["body"]); diff != "" {
				t.Errorf("%s: an answer that quotes the request (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// From the hash of a body with a short value in it, the value could be found by trying all.
func TestTheKeyOfARequestSaysNothingOfASecret(t *testing.T) {
	at, seen := echo(t)
	world, p := plansFor(t)
	key := func(pin string) string {
		t.Helper()
		secretOf(t, world, p.Namespace, "pin", map[string]string{"pin": pin})
		defer func() {
			if err := world.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "pin"}}); err != nil {
				t.Fatal(err)
			}
		}()
		_, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p,
			params{"url": at.String(), "method": "POST", "body": map[string]any{"pin": secret("pin", "pin")}})
		if err != nil {
			t.Fatal(err)
		}
		return (*seen)[len(*seen)-1].Key
	}
	if one, two := key("1111"), key("2222"); one != two || (*seen)[0].Body == (*seen)[1].Body {
		t.Errorf("keys %s and %s of %v: they tell the values apart, or the values were not sent", one, two, *seen)
	}
}

// asSite makes an object without a namespace, and a client that takes its Go type for that kind.
func asSite(t *testing.T, name string) (client.Client, *plan) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	scheme.AddKnownTypeWithName(siteKind, &plan{})
	metav1.AddToGroupVersion(scheme, siteKind.GroupVersion())
	c, err := client.New(shared.Cluster(t).Config, client.Options{Scheme: scheme, Mapper: shared.Cluster(t).Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	site := &plan{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	return c, site
}

// An object without a namespace says whose Secrets it means.
func TestSecretsOfAClusterScopedObject(t *testing.T) {
	world, p := plansFor(t)
	secretOf(t, world, p.Namespace, "ca", map[string]string{"token": token})
	at, seen := echo(t)
	c, site := asSite(t, p.Namespace)
	ask := builtin.Actions[*plan](builtin.Options{Client: c, HTTP: local(at.Host)})["HTTPRequest"]
	for namespace, want := range map[string]string{"": "NamespaceMissing", p.Namespace: ""} {
		ref := secret("ca", "token")
		if namespace != "" {
			ref = secret("ca", "token", "namespace", namespace)
		}
		with := params{"url": at.String(), "headers": map[string]any{"Authorization": ref}}
		if _, err := runner.Once(t.Context(), c, site, ask, with, clocktesting.NewFakeClock(noon)); reasonOf(err) != want {
			t.Errorf("namespace %q: got %v, want %q", namespace, err, want)
		}
	}
	if len(*seen) != 1 || (*seen)[0].Authorization != token {
		t.Errorf("asked with %v", *seen)
	}
}

// A manager without the right says which one, of which Secret.
func TestAccessToSecrets(t *testing.T) {
	with := params{"url": "https://example.org", "headers": map[string]any{"Authorization": secret("ca", "token")},
		"body": map[string]any{"a": []any{secret("${self.spec.ca}", "token"), secret("other", "token", "namespace", "ops")}}}
	got := []string{}
	for _, a := range builtin.Access("HTTPRequest", with) {
		got = append(got, strings.TrimSpace(fmt.Sprint(a.Verbs, a.APIVersion, a.Kind, " ", a.Namespace, "/", a.Name)))
	}
	want := []string{"[get]v1Secret /", "[get]v1Secret ops/other", "[get]v1Secret /ca"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
