// Package faults puts a bad network, a bad API server or a crash between a client
// and an API server, at a request that a test names. Its own tests sweep a fault
// over every write of the controllers.
//
// It knows requests, not what they are for: which of them matter, and what has to
// hold afterwards, is for the test.
//
//	faulty := faults.New(&faults.Rule{When: faults.Write, Nth: 3, Do: faults.Lose})
//	config.Wrap(faulty.Wrap)
package faults

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Always is a Rule's Times without an end.
const Always = -1

// Rule says which requests meet a fault. It belongs to one Transport.
type Rule struct {
	// When tells which requests count; nil: all do. It is called under a lock and
	// must not send requests.
	When func(*request.RequestInfo) bool
	// Nth is the first of those that meets the fault: 1, or 0, is the very first.
	Nth int
	// Times is how many in a row meet it: 0 means one, Always all from the Nth on.
	Times int
	// Share is the part of those that meet it, by chance: 0 means all.
	Share float64
	// Do is the fault.
	Do Fault

	// counted is how many requests counted so far. The lock of the Transport guards it.
	counted int
}

// Transport passes requests on unless a rule says otherwise. One Transport may wrap
// any number of clients, which then count together, as the parts of one process.
type Transport struct {
	mu    sync.Mutex
	rules []*Rule
	// cut is true from a crash on; down is closed, and isDown true, once the flying
	// requests are over, too.
	cut, isDown bool
	flying      int
	down        chan struct{}
	// chance is asked for rules with a Share.
	chance func() float64
	// met are the requests that met a fault, in order.
	met []string
}

// New makes a Transport. For a request that several rules are about, each counts,
// and the first that is due acts.
func New(rules ...*Rule) *Transport { return Seeded(0, rules...) }

// Seeded is New with the seed of what is left to chance.
func Seeded(seed uint64, rules ...*Rule) *Transport {
	random := rand.New(rand.NewPCG(seed, 0))
	return &Transport{rules: rules, down: make(chan struct{}), chance: random.Float64}
}

// Wrap is for rest.Config.Wrap. It may be called for several clients.
func (t *Transport) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		do, err := t.judge(req)
		if err != nil {
			closeBody(req)
			return nil, err
		}
		defer t.over()
		return do(t, req, next)
	})
}

// over is called when a request has its answer, or will have none.
func (t *Transport) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flying--; t.cut && t.flying == 0 && !t.isDown {
		t.isDown = true
		close(t.down)
	}
}

// Crashed is true once a rule has cut the process off from the API server.
func (t *Transport) Crashed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// Down is closed once a rule has cut the process off, and what it had sent before has
// an answer: whatever the process still does then, it may as well leave.
func (t *Transport) Down() <-chan struct{} { return t.down }

// Met lists the requests that met a fault, as "verb resource/subresource name".
func (t *Transport) Met() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.met)
}

// judge counts a request and answers the fault that it meets, which may be Pass.
func (t *Transport) judge(req *http.Request) (Fault, error) {
	info, err := infos.NewRequestInfo(req)
	if err != nil {
		return nil, fmt.Errorf("understand the request %s %s: %w", req.Method, req.URL, err)
	}
	if isDryRun(req) {
		info.Verb = "dry-run " + info.Verb // it changes nothing
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flying++
	if t.cut {
		return refuse, nil
	}
	var due *Rule
	for _, rule := range t.rules {
		if (rule.When == nil || rule.When(info)) && rule.count(t.chance) && due == nil {
			due = rule
		}
	}
	if due == nil {
		return Pass, nil
	}
	t.met = append(t.met, describe(info))
	return due.Do, nil
}

// isDryRun looks into the body of a deletion, too: its options are there.
func isDryRun(req *http.Request) bool {
	if req.Method != http.MethodDelete || req.GetBody == nil {
		return req.URL.Query().Has("dryRun")
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	options, err := io.ReadAll(body)
	return err == nil && bytes.Contains(options, []byte(`"dryRun":["All"]`))
}

// count tells whether the rule is due at the request that it counts.
func (r *Rule) count(chance func() float64) bool {
	r.counted++
	first := max(r.Nth, 1)
	due := r.counted >= first && (r.Times == Always || r.counted < first+max(r.Times, 1))
	return due && (r.Share == 0 || chance() < r.Share)
}

func (t *Transport) crash() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = true
}

var infos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func describe(info *request.RequestInfo) string {
	what := info.Resource
	if info.Subresource != "" {
		what += "/" + info.Subresource
	}
	if !info.IsResourceRequest {
		what = info.Path
	}
	text := info.Verb + " " + what
	if info.Name != "" {
		text += " " + info.Name
	}
	return text
}

// Write is true of a request that changes something. Events are left out: they are
// sent aside, at any time, and nothing depends on them; and so are questions that are
// asked by a create, such as SelfSubjectAccessReviews. A dry run has a verb of its own,
// "dry-run patch", and is no write.
func Write(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.Resource != "events" && !strings.HasSuffix(info.Resource, "reviews") &&
		slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, info.Verb)
}

// Requests is true of requests of this verb ("get", "patch", …) on this resource
// ("pods", "mcpservers/status"); "*" stands for any.
func Requests(verb, resource string) func(*request.RequestInfo) bool {
	return func(info *request.RequestInfo) bool {
		what := info.Resource
		if info.Subresource != "" {
			what += "/" + info.Subresource
		}
		return info.IsResourceRequest && (verb == "*" || verb == info.Verb) && (resource == "*" || resource == what)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
