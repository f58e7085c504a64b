package builtin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/builtin"
)

// asked is what a server saw of a request.
type asked struct{ Method, Path, Body, ContentType, Extra, Key string }

// listen answers by path, and notes what it was asked.
func listen(t *testing.T) (at *url.URL, seen *[]asked) {
	t.Helper()
	seen = &[]asked{}
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // not noted: nobody waits for the note
			<-r.Context().Done()
			return
		}
		body, _ := io.ReadAll(r.Body)
		*seen = append(*seen, asked{r.Method, r.URL.Path, string(body), r.Header.Get("Content-Type"), r.Header.Get("X-Extra"), r.Header.Get("Idempotency-Key")})
		switch r.URL.Path {
		case "/within":
			http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/secret", http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/long":
			fmt.Fprint(w, strings.Repeat("<\x01ä\xff", 8000))
		default:
			fmt.Fprint(w, "fine")
		}
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, seen
}

func TestHTTPRequest(t *testing.T) {
	world, p := plansFor(t)
	at, seen := listen(t)
	answer := func(status int64, body string) map[string]any {
		return map[string]any{"status": status, "body": body, "truncated": false}
	}
	cases := map[string]struct {
		why   string
		path  string
		with  params
		want  map[string]any
		first asked
	}{
		"get": {why: "the least that can be said", path: "/ok", want: answer(200, "fine"), first: asked{Method: "GET", Path: "/ok"}},
		"post": {why: "content is sent as JSON", path: "/ok", want: answer(200, "fine"),
			with:  params{"method": "post", "body": map[string]any{"a": 1.0}, "headers": map[string]any{"x-extra": "b"}},
			first: asked{Method: "POST", Path: "/ok", Body: `{"a":1}`, ContentType: "application/json", Extra: "b"}},
		"text": {why: "a text is sent as it is", path: "/ok", with: params{"method": "PUT", "body": "plain"}, want: answer(200, "fine"),
			first: asked{Method: "PUT", Path: "/ok", Body: "plain"}},
		"busy": {why: "what an answer means is for the machine to say", path: "/busy", want: answer(503, ""), first: asked{Method: "GET", Path: "/busy"}},
		"redirect": {why: "a POST may have become a GET behind it", path: "/within", with: params{"method": "POST", "body": "b"}, want: answer(307, ""),
			first: asked{Method: "POST", Path: "/within", Body: "b"}},
		"redirect away": {why: "nobody allowed the other host", path: "/away", want: answer(302, "<a href=\"ELSEWHERE/secret\">Found</a>.\n\n"),
			first: asked{Method: "GET", Path: "/away"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			*seen = nil
			with := params{"url": at.String() + c.path}
			maps.Copy(with, c.with)
			out, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p, with)
			if err != nil {
				t.Fatal(err)
			}
			out["body"] = hidePort(out["body"].(string))
			if diff := cmp.Diff(c.want, out); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if len(*seen) != 1 {
				t.Fatalf("asked %d times, want 1", len(*seen))
			}
			first := (*seen)[0]
			first.Key = ""
			if diff := cmp.Diff(c.first, first); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHTTPRequestFails(t *testing.T) {
	world, p := plansFor(t)
	at, seen := listen(t)
	cases := map[string]struct {
		why  string
		path string
		with params
		// says is the reason of the error, or what its text ends with.
		says string
	}{
		"slow":       {why: "a worker must not be held up; the path and the query may be secret", path: "/slow?token=secret", with: params{"timeout": "50ms"}, says: "GET http://" + at.Host + ": context deadline exceeded"},
		"large body": {why: "memory is bounded", path: "/ok", with: params{"body": strings.Repeat("x", 70000)}, says: "BadParameter"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			with := params{"url": at.String() + c.path}
			maps.Copy(with, c.with)
			_, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p, with)
			if err == nil || !strings.HasSuffix(reasonOf(err), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, want %s", c.why, err, c.says)
			}
		})
	}
	if len(*seen) > 0 {
		t.Errorf("asked all the same: %v", *seen)
	}
}

// hidePort makes bodies comparable that name a test server.
func hidePort(body string) string {
	before, after, found := strings.Cut(body, "http://127.0.0.1:")
	if !found {
		return body
	}
	return before + "ELSEWHERE" + after[strings.Index(after, "/"):]
}

// A name may lead anywhere, and elsewhere a moment later: the address that is
// connected to decides.
func TestHTTPRequestToAPrivateAddress(t *testing.T) {
	world, p := plansFor(t)
	at, seen := listen(t)
	for name, target := range map[string]string{
		"by name":    "http://localhost:" + at.Port() + "/ok",
		"by address": at.String() + "/ok",
	} {
		t.Run(name, func(t *testing.T) {
			host, _ := url.Parse(target)
			o := builtin.Options{Client: world, HTTP: builtin.HTTP{AllowHosts: []string{host.Host}}}
			if _, err := actWith(t, o, "HTTPRequest", p, params{"url": target}); reasonOf(err) != "AddressRefused" {
				t.Errorf("got %v: an allowed host reached a private address", err)
			}
			o.HTTP = local(host.Host)
			if _, err := actWith(t, o, "HTTPRequest", p, params{"url": target}); err != nil {
				t.Errorf("with leave: %v", err)
			}
		})
	}
	if len(*seen) != 2 {
		t.Errorf("asked %d times, want 2: a refused address was connected to", len(*seen))
	}
	for _, hosts := range [][]string{nil, {"example.org"}} {
		_, err := actWith(t, builtin.Options{Client: world, HTTP: local(hosts...)}, "HTTPRequest", p, params{"url": at.String()})
		if err == nil || !strings.Contains(err.Error(), "--allow-http-host="+strings.Split(at.Host, ":")[0]) {
			t.Errorf("hosts %v: got %v, want the flag that is missing", hosts, err)
		}
	}
}

// What goes into the status is bounded as JSON, where one byte may become six.
func TestHTTPRequestBoundsTheAnswer(t *testing.T) {
	world, p := plansFor(t)
	at, _ := listen(t)
	out, err := actWith(t, builtin.Options{Client: world, HTTP: local(at.Host)}, "HTTPRequest", p, params{"url": at.String() + "/long"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(out["body"])
	if err != nil || len(data) > 8<<10 || len(data) < 4<<10 || out["truncated"] != true {
		t.Errorf("%d bytes of JSON, truncated %v, %v; want at most 8 KiB, and not much less", len(data), out["truncated"], err)
	}
}

// The key of a repeat is the same, that of any other request is not.
func TestIdempotencyKey(t *testing.T) {
	world, p := plansFor(t)
	at, seen := listen(t)
	ask := func(step string, body any) string {
		t.Helper()
		with := params{"url": at.String() + "/ok", "method": "POST", "body": body}
		if _, err := actAs(t, builtin.Options{Client: world, HTTP: local(at.Host)}, step, "HTTPRequest", p, with); err != nil {
			t.Fatal(err)
		}
		return (*seen)[len(*seen)-1].Key
	}
	first := ask("Start", params{"size": 1.0})
	keys := map[string]string{
		"a repeat":     ask("Start", params{"size": 1.0}),
		"another body": ask("Start", params{"size": 2.0}),
		"another step": ask("Tell", params{"size": 1.0}),
	}
	nextVisit(t, world, p)
	keys["another visit"] = ask("Start", params{"size": 1.0})
	for name, key := range keys {
		if (key == first) != (name == "a repeat") {
			t.Errorf("%s has the key %s, and the first request %s", name, key, first)
		}
	}
}
