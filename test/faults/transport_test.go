package faults_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/phasegate/phasegate/test/faults"
)

const (
	pods   = "/api/v1/namespaces/a/pods"
	pod    = pods + "/p"
	events = "/apis/events.k8s.io/v1/namespaces/a/events"
	review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	server = "/apis/toolhive.stacklok.dev/v1beta1/namespaces/a/mcpservers/s"
)

// seen is what a client saw of a request, and whether the server did.
type seen struct {
	Sent string
	// Got is the status code, or what went wrong.
	Got any
	// Served is true when the request has reached the server.
	Served bool
}

func TestRulesAndFaults(t *testing.T) {
	conflict := faults.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)
	cases := map[string]struct {
		why   string
		rules []*faults.Rule
		send  []string
		want  []seen
		met   []string
		dead  bool
	}{
		"no rule": {
			why:  "nothing is in the way",
			send: []string{"GET " + pods},
			want: []seen{{"GET " + pods, 200, true}},
		},
		"only listed": {
			why:   "a test that asks what is written, not what happens then",
			rules: []*faults.Rule{{When: faults.Write, Times: faults.Always, Do: faults.Pass}},
			send:  []string{"GET " + pod, "PATCH " + pod, "DELETE " + pod},
			want:  []seen{{"GET " + pod, 200, true}, {"PATCH " + pod, 200, true}, {"DELETE " + pod, 200, true}},
			met:   []string{"patch pods p", "delete pods p"},
		},
		"the second write, refused": {
			why:   "reads, events and reviews do not count, and it is one request only",
			rules: []*faults.Rule{{When: faults.Write, Nth: 2, Do: faults.Refuse}},
			send:  []string{"GET " + pod, "POST " + pods, "POST " + events, "POST " + review, "PATCH " + pod, "DELETE " + pod},
			want: []seen{{"GET " + pod, 200, true}, {"POST " + pods, 200, true}, {"POST " + events, 200, true}, {"POST " + review, 200, true},
				{"PATCH " + pod, syscall.ECONNREFUSED, false}, {"DELETE " + pod, 200, true}},
			met: []string{"patch pods p"},
		},
		"a dry run": {
			why:   "it changes nothing, and a test may mean it all the same",
			rules: []*faults.Rule{{When: faults.Write, Do: faults.Lose}, {When: faults.Requests("dry-run patch", "pods"), Do: faults.Refuse}},
			send:  []string{"PATCH " + pod + "?dryRun=All", "PATCH " + pod},
			want:  []seen{{"PATCH " + pod + "?dryRun=All", syscall.ECONNREFUSED, false}, {"PATCH " + pod, syscall.ECONNRESET, true}},
			met:   []string{"dry-run patch pods p", "patch pods p"},
		},
		"an answer is lost": {
			why:   "the server has done the work",
			rules: []*faults.Rule{{When: faults.Write, Do: faults.Lose}},
			send:  []string{"POST " + pods, "POST " + pods},
			want:  []seen{{"POST " + pods, syscall.ECONNRESET, true}, {"POST " + pods, 200, true}},
			met:   []string{"create pods"},
		},
		"a crash before a write": {
			why:   "from then on nothing goes out, reads and events included",
			rules: []*faults.Rule{{When: faults.Write, Nth: 2, Do: faults.CrashBefore}},
			send:  []string{"POST " + pods, "PATCH " + pod, "GET " + pod, "POST " + events},
			want: []seen{{"POST " + pods, 200, true}, {"PATCH " + pod, syscall.ECONNREFUSED, false},
				{"GET " + pod, syscall.ECONNREFUSED, false}, {"POST " + events, syscall.ECONNREFUSED, false}},
			met:  []string{"patch pods p"},
			dead: true,
		},
		"a crash after a write": {
			why:   "the work is done, and nobody knows",
			rules: []*faults.Rule{{When: faults.Write, Do: faults.CrashAfter}},
			send:  []string{"PATCH " + pod, "GET " + pod},
			want:  []seen{{"PATCH " + pod, syscall.ECONNRESET, true}, {"GET " + pod, syscall.ECONNREFUSED, false}},
			met:   []string{"patch pods p"},
			dead:  true,
		},
		"answers of the server, twice in a row": {
			why:   "the second and the third status write of one kind, no other request",
			rules: []*faults.Rule{{When: faults.Requests("patch", "mcpservers/status"), Nth: 2, Times: 2, Do: conflict}},
			send:  []string{"PATCH " + server + "/status", "PATCH " + server, "PATCH " + server + "/status", "PATCH " + server + "/status", "PATCH " + server + "/status"},
			want: []seen{{"PATCH " + server + "/status", 200, true}, {"PATCH " + server, 200, true},
				{"PATCH " + server + "/status", 409, false}, {"PATCH " + server + "/status", 409, false}, {"PATCH " + server + "/status", 200, true}},
			met: []string{"patch mcpservers/status s", "patch mcpservers/status s"},
		},
		"for ever": {
			why:   "a server that is overloaded, for every client",
			rules: []*faults.Rule{{Times: faults.Always, Do: faults.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second)}},
			send:  []string{"GET /version", "GET " + pods},
			want:  []seen{{"GET /version", 429, false}, {"GET " + pods, 429, false}},
			met:   []string{"get /version", "list pods"},
		},
		"two rules for one request": {
			why: "both count, the first acts",
			rules: []*faults.Rule{{When: faults.Requests("*", "pods"), Nth: 2, Do: faults.Refuse},
				{When: faults.Requests("delete", "*"), Times: 2, Do: conflict}},
			send: []string{"GET " + pod, "DELETE " + pod, "DELETE " + pod, "DELETE " + pod},
			want: []seen{{"GET " + pod, 200, true}, {"DELETE " + pod, syscall.ECONNREFUSED, false},
				{"DELETE " + pod, 409, false}, {"DELETE " + pod, 200, true}},
			met: []string{"delete pods p", "delete pods p"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			faulty := faults.New(tc.rules...)
			w := newWire(t, faulty)
			var got []seen
			for _, line := range tc.send {
				got = append(got, w.send(line))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.met, faulty.Met()); diff != "" {
				t.Errorf("what met a fault (-want +got):\n%s", diff)
			}
			if faulty.Crashed() != tc.dead {
				t.Errorf("crashed = %t, want %t: %s", faulty.Crashed(), tc.dead, tc.why)
			}
		})
	}
}

// wire is a client, the Transport and a server that always answers 200.
type wire struct {
	t      *testing.T
	client *http.Client
	host   string

	mu     sync.Mutex
	served int
}

func newWire(t *testing.T, faulty *faults.Transport) *wire {
	w := &wire{t: t}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.served++
	}))
	t.Cleanup(s.Close)
	w.host = s.URL
	w.client = &http.Client{Transport: faulty.Wrap(s.Client().Transport)}
	return w
}

// What is left to chance is the same again with the same seed.
func TestShare(t *testing.T) {
	tries := func(seed uint64) (met []int) {
		faulty := faults.Seeded(seed, &faults.Rule{When: faults.Write, Times: faults.Always, Share: 0.3, Do: faults.Refuse})
		w := newWire(t, faulty)
		for i := range 200 {
			if w.send("POST "+pods).Got != 200 {
				met = append(met, i)
			}
		}
		return met
	}
	first := tries(1)
	if n := len(first); n < 40 || n > 80 {
		t.Errorf("%d of 200 requests met a fault that is for 30 of 100", n)
	}
	if diff := cmp.Diff(first, tries(1)); diff != "" {
		t.Errorf("another time, with the same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(first, tries(2)) {
		t.Error("another seed changes nothing")
	}
}

// A process that crashes is down when the request of the crash is over, not before.
func TestDown(t *testing.T) {
	faulty := faults.New(&faults.Rule{When: faults.Write, Do: faults.CrashAfter})
	w := newWire(t, faulty)
	w.send("GET " + pod)
	select {
	case <-faulty.Down():
		t.Fatal("down before the crash")
	default:
	}
	w.send("POST " + pods)
	<-faulty.Down()
	if w.count() != 2 {
		t.Errorf("the server has seen %d requests, want 2", w.count())
	}
}

// The options of a deletion are in its body.
func TestDryRunDeletion(t *testing.T) {
	faulty := faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: faults.Pass})
	w := newWire(t, faulty)
	for _, options := range []string{`{"dryRun":["All"]}`, `{}`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.host+pod, strings.NewReader(options))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if diff := cmp.Diff([]string{"delete pods p"}, faulty.Met()); diff != "" {
		t.Errorf("which deletion is a write (-want +got):\n%s", diff)
	}
}

func (w *wire) send(line string) seen {
	w.t.Helper()
	before := w.count()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.host+path, strings.NewReader("{}"))
	if err != nil {
		w.t.Fatal(err)
	}
	s := seen{Sent: line}
	answer, err := w.client.Do(req)
	var no syscall.Errno
	switch {
	case errors.As(err, &no):
		s.Got = no
	case err != nil:
		s.Got = err.Error()
	default:
		s.Got = answer.StatusCode
		_ = answer.Body.Close()
	}
	s.Served = w.count() > before
	return s
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served
}

func TestDelay(t *testing.T) {
	cases := map[string]struct {
		why     string
		patient time.Duration
		want    error
		took    time.Duration
		served  bool
	}{
		"waited for": {why: "the request comes late, and is done", patient: time.Minute, took: 3 * time.Second, served: true},
		"not waited": {why: "who gives up has sent nothing", patient: time.Second, want: context.DeadlineExceeded, took: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served := false
				faulty := faults.New(&faults.Rule{Do: faults.Delay(3 * time.Second)}).Wrap(inMemory(func(*http.Request) (*http.Response, error) {
					served = true
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				}))
				ctx, cancel := context.WithTimeout(t.Context(), tc.patient)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api"+pods, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				answer, err := faulty.RoundTrip(req)
				if err == nil {
					_ = answer.Body.Close()
				}
				if !errors.Is(err, tc.want) || served != tc.served || time.Since(began) != tc.took {
					t.Errorf("%s: error %v after %s, served %t; want %v after %s, %t", tc.why, err, time.Since(began), served, tc.want, tc.took, tc.served)
				}
			})
		})
	}
}

type inMemory func(*http.Request) (*http.Response, error)

func (f inMemory) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestWrite(t *testing.T) {
	cases := map[string]struct {
		why  string
		info request.RequestInfo
		want bool
	}{
		"a patch":            {why: "it changes something", info: request.RequestInfo{IsResourceRequest: true, Verb: "patch", Resource: "pods"}, want: true},
		"all of a namespace": {why: "so does this", info: request.RequestInfo{IsResourceRequest: true, Verb: "deletecollection", Resource: "pods"}, want: true},
		"a watch":            {why: "it reads", info: request.RequestInfo{IsResourceRequest: true, Verb: "watch", Resource: "pods"}},
		"an event":           {why: "it comes at any time", info: request.RequestInfo{IsResourceRequest: true, Verb: "create", Resource: "events"}},
		"a path":             {why: "it is about no object", info: request.RequestInfo{Verb: "post", Path: "/metrics"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := faults.Write(&tc.info); got != tc.want {
				t.Errorf("Write = %t, want %t: %s", got, tc.want, tc.why)
			}
		})
	}
}

// What a client of Kubernetes makes of an answer is an error like the server's own.
func TestAnswerIsAStatus(t *testing.T) {
	faulty := faults.New(&faults.Rule{Do: faults.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)})
	w := newWire(t, faulty)
	answer, err := w.client.Get(w.host + pod)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a fault of the test: 409 for GET ` + pod + `","reason":"Conflict","code":409}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}
