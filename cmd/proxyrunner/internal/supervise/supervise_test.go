package supervise_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/supervise"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// connection is one that is up until the test says otherwise.
type connection struct {
	host string
	away atomic.Bool
	// ended is closed when Run has ended.
	ended chan struct{}
}

func (c *connection) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, c.host)
}
func (c *connection) Health() (bool, string) { return !c.away.Load(), "away" }
func (c *connection) Run(ctx context.Context) error {
	<-ctx.Done()
	close(c.ended)
	return nil
}

// bench is a supervisor whose surroundings a test plays: it answers each question.
type bench struct {
	*supervise.Supervisor
	deploys     chan deployed
	awaits      chan error
	connections chan *connection
	stop        context.CancelFunc // as SIGTERM
	serving     context.CancelFunc // as the end of the last call
	ended       chan struct{}
}

type deployed struct {
	backend.Result
	err error
}

func newBench(t *testing.T, exclusive bool) *bench {
	t.Helper()
	b := &bench{deploys: make(chan deployed), awaits: make(chan error), connections: make(chan *connection, 9), ended: make(chan struct{})}
	b.Supervisor = &supervise.Supervisor{
		Deploy: func(context.Context) (backend.Result, error) { d := <-b.deploys; return d.Result, d.err },
		Await:  func(context.Context) error { return <-b.awaits },
		Connect: func(host string) supervise.Connection {
			c := &connection{host: host, ended: make(chan struct{})}
			b.connections <- c
			return c
		},
		Front: front.New("sse"), Exclusive: exclusive, Log: slog.New(slog.DiscardHandler),
		Pace: supervise.Pace{First: time.Millisecond, Longest: time.Millisecond, Look: time.Millisecond, Lost: 2},
	}
	ctx, stop := context.WithCancel(t.Context())
	serving, served := context.WithCancel(t.Context())
	b.stop, b.serving = stop, served
	go func() { b.Run(ctx, serving); close(b.ended) }()
	return b
}

// says is what a client is answered.
func (b *bench) says() string {
	w := httptest.NewRecorder()
	b.Front.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", nil))
	return w.Body.String()
}

func waitsFor(what string) string {
	return `{"error":{"code":-32000,"message":"the MCP server is not there yet: ` + what + `"},"id":null,"jsonrpc":"2.0"}`
}

var made = deployed{Result: backend.Result{Host: "mcp-fetch"}}

func TestServesWhenTheServerIsReady(t *testing.T) {
	b := newBench(t, true)
	said := []string{b.says()}
	b.deploys <- deployed{err: errors.New("forbidden")}
	b.deploys <- made // a failure is tried again, and told meanwhile
	said = append(said, b.says())
	b.awaits <- errors.New("0 of 1 pods")
	b.deploys <- made
	said = append(said, b.says())
	b.awaits <- nil
	c := <-b.connections
	b.stop()
	<-b.ended
	said = append(said, b.says())
	want := []string{waitsFor("the proxy is starting"), waitsFor("apply it: forbidden"), waitsFor("0 of 1 pods"), "mcp-fetch"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("what clients got (-want +got):\n%s", diff)
	}
	select {
	case <-c.ended:
		t.Error("the connection ended before the calls under way did")
	default:
	}
	b.serving()
	<-c.ended
}

func TestServerThatIsAwayIsMadeAgain(t *testing.T) {
	b := newBench(t, true)
	b.deploys <- made
	b.awaits <- nil
	c := <-b.connections
	c.away.Store(true)
	b.deploys <- made // it was deleted, say
	c.away.Store(false)
	b.awaits <- nil
	b.stop()
	<-b.ended
	if got := b.says(); got != "mcp-fetch" || len(b.connections) != 0 {
		t.Errorf("a client got %q, %d more connections; want the one there was", got, len(b.connections))
	}
}

func TestOnlyOneIsConnectedToWhatBearsNoTwo(t *testing.T) {
	newer := deployed{Result: backend.Result{Host: "mcp-fetch", Skipped: true, Why: "generation 6"}}
	for name, exclusive := range map[string]bool{"stdio": true, "HTTP": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, exclusive)
			b.deploys <- made
			b.awaits <- nil
			first := <-b.connections
			first.away.Store(true)
			b.deploys <- newer // meanwhile, a newer proxy has applied
			if !exclusive {
				b.awaits <- nil
				b.deploys <- newer
				if got := b.says(); got != "mcp-fetch" {
					t.Errorf("a client got %q: many may call", got)
				}
				return
			}
			select {
			case <-first.ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the older proxy stays attached beside a newer one: two would read one standard output")
			}
			b.deploys <- made // that one is gone again
			if got, want := b.says(), waitsFor("a newer proxy is taking over: generation 6"); got != want {
				t.Errorf("a client got %q, want %q", got, want)
			}
			b.awaits <- nil
			if second := <-b.connections; second == first {
				t.Error("a connection that has ended is used again")
			}
		})
	}
}
