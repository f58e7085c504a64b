package simulation

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// site is what a machine asks over HTTP: the paths of one server for all scenes.
type site struct {
	s    *scene
	id   string
	base string
	// up is when it answers 200.
	up     time.Time
	bodies map[string]string // by key
}

var sites struct {
	sync.Mutex
	server *httptest.Server
	open   map[string]*site
	opened int
}

func openSite(s *scene) *site {
	sites.Lock()
	defer sites.Unlock()
	if sites.server == nil {
		sites.open = map[string]*site{}
		sites.server = httptest.NewServer(http.HandlerFunc(answer))
	}
	sites.opened++
	site := &site{s: s, id: fmt.Sprint(sites.opened), base: sites.server.URL, bodies: map[string]string{},
		up: simulate.Epoch.Add([]time.Duration{0, 30 * time.Second, 3 * time.Minute}[s.chance.IntN(3)])}
	sites.open[site.id] = site
	return site
}

func (s *site) url(object string) string { return s.base + "/" + s.id + "/" + object }

func (s *site) close() {
	sites.Lock()
	defer sites.Unlock()
	delete(sites.open, s.id)
}

// leave is what allows HTTPRequest to come here.
func (s *site) leave() builtin.HTTP {
	return builtin.HTTP{AllowHosts: []string{strings.TrimPrefix(s.base, "http://")}, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

func answer(w http.ResponseWriter, r *http.Request) {
	part := strings.SplitN(strings.Trim(r.URL.Path, "/"), "/", 3)
	sites.Lock()
	defer sites.Unlock()
	site := sites.open[part[0]]
	if site == nil || len(part) < 2 {
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(site.asked(part[1], r.Method+" "+strings.Join(part[2:], "/"), r.Header.Get("Idempotency-Key"), string(body)))
}

// asked is a request, while the manager waits for its answer.
func (s *site) asked(object, what, key, body string) int {
	s.s.tell("%s asks %s", object, what)
	s.s.called(object, what, s.s.example.pace)
	if old, known := s.bodies[key]; known && old != body {
		s.s.fail(twice, "%s sends %q with the Idempotency-Key of %q", object, body, old)
	}
	s.bodies[key] = body
	if now := s.s.clock.Now(); now.Before(s.up) || now.Before(s.s.outage) {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}
