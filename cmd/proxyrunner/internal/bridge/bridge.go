// Package bridge lets many clients that speak HTTP use one MCP server that speaks
// over its standard input and output, one JSON-RPC message a line.
//
// The server believes that it has one client. What a client may choose itself, the
// ids of its requests and its progress tokens, is therefore replaced by numbers of
// the bridge on the way in and put back on the way out, and the server is
// initialised once, for all.
//
// It knows no Kubernetes: where the two streams come from is Options.Open's concern.
package bridge

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

// The two ways in which clients are served.
const (
	ModeStreamableHTTP = "streamable-http"
	ModeSSE            = "sse"
)

// What one client, or the server, can make the bridge hold.
const (
	// MaxLine is the longest message of the server, in bytes. A longer one fails the
	// call that it answers.
	MaxLine = 10 << 20
	// StateBytes is what sessions, calls under way and subscriptions may hold together.
	StateBytes = 24 << 20
	// maxQuestions is how many requests of the server may wait for a client's answer.
	maxQuestions = 256
)

const (
	defaultSessionTTL     = 2 * time.Hour
	defaultRequestTimeout = time.Minute
	// firstPause and longestPause are between two attempts to reach the server.
	firstPause, longestPause = time.Second, 15 * time.Second
)

// Options say which server, and how clients are served.
type Options struct {
	// Open reaches the server: what is written is its input, what is read its
	// output. It is called again whenever the stream has ended, cleanly or not. The
	// stream ends with ctx; Close ends it too, and with it a Read or Write under way.
	Open func(ctx context.Context) (io.ReadWriteCloser, error)
	// Mode is ModeStreamableHTTP, also if empty, or ModeSSE.
	Mode string
	// EndpointPrefix is put before the path that an endpoint event of sse names:
	// the path under which clients reach the proxy.
	EndpointPrefix string
	// TrustProxyHeaders believes X-Forwarded-Prefix where EndpointPrefix is empty.
	TrustProxyHeaders bool
	// SessionTTL is how long an idle session is kept; 0 means two hours.
	SessionTTL time.Duration
	// RequestTimeout is how long the server may take for an answer, or from one
	// report of progress to the next; 0 means a minute.
	RequestTimeout time.Duration
	// Restart starts a server again that says nothing any more; nil leaves it alone.
	// It returns once that was asked for.
	Restart func(ctx context.Context) error
	// Up is called each time the server is attached and initialised; nil for nobody. It does not wait.
	Up func()
	// Requests and Answers bound what waits for the server, and for clients; nil
	// stands for limit.Total each.
	Requests, Answers *limit.Budget
	// State bounds what lasts: sessions, calls under way, subscriptions; nil stands for
	// StateBytes.
	State *limit.Shares
	// Log receives what goes wrong, without the content of messages.
	Log *slog.Logger
}

// Bridge is an http.Handler for /mcp, or for /sse and /messages. It answers that
// the server is away while Run is not running. It holds the sessions of clients, their
// mailboxes and the link to the server.
type Bridge struct {
	o   Options
	mux *http.ServeMux

	// mu guards what follows, and the fields of sessions, links, calls and mailboxes that
	// say so. Nothing waits while it is held.
	mu       sync.Mutex
	lastID   int32
	link     *link // nil while the server is away
	away     string
	over     bool
	sessions map[string]*session
	byUse    list.List       // of *session, the one that was used longest ago first
	greeting json.RawMessage // the last answer of the server to initialize
	level    string          // of logs, as a client has chosen it last
	mail     mailboxes
	// named are the streams of calls that can be asked for again, of *mailbox, the oldest first.
	named list.List
	// unanswered says that the last link ended while the server may have worked on calls.
	unanswered bool
}

// New makes a bridge. It does nothing before Run.
func New(o Options) *Bridge {
	if o.SessionTTL <= 0 {
		o.SessionTTL = defaultSessionTTL
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Requests = cmp.Or(o.Requests, limit.NewBudget(limit.Total))
	o.Answers = cmp.Or(o.Answers, limit.NewBudget(limit.Total))
	o.State = cmp.Or(o.State, limit.NewShares(StateBytes))
	b := &Bridge{o: o, mux: http.NewServeMux(), sessions: map[string]*session{}, away: "not attached yet"}
	b.mail = mailboxes{mu: &b.mu, answers: o.Answers, log: o.Log, waiting: map[*mailbox]struct{}{}}
	// A server that outlives its proxy may still answer the calls of the one before:
	// numbers begin anywhere.
	b.lastID = int32(time.Now().UnixNano() / int64(time.Microsecond) & math.MaxInt32)
	if o.Mode == ModeSSE {
		b.mux.HandleFunc("/sse", b.serveSSE)
		b.mux.HandleFunc("/messages", b.serveMessages)
	} else {
		b.mux.HandleFunc("/mcp", b.serveMCP)
	}
	return b
}

// ServeHTTP serves clients.
func (b *Bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// Health tells whether the server is attached and initialised if it was before, and
// a sentence for people.
func (b *Bridge) Health() (ok bool, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return false, b.away
	}
	if silence := b.link.silenceLocked(); silence > pingTimeout {
		return false, fmt.Sprintf("the MCP server has not answered a ping for %s", silence.Round(time.Second))
	}
	return true, "attached"
}

// Empty tells whether no session is left that clients know.
func (b *Bridge) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions) == 0
}

// Run keeps the server attached until ctx ends, and then ends all sessions. It may
// be called once. The error is always nil.
func (b *Bridge) Run(ctx context.Context) error {
	sweep := time.NewTicker(max(time.Second, b.o.SessionTTL/10))
	defer sweep.Stop()
	go func() {
		for {
			select {
			case now := <-sweep.C:
				b.expire(now)
			case <-ctx.Done():
				return
			}
		}
	}()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		err := b.attach(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		b.tell(fmt.Sprintf("the MCP server is away: %v: next attempt in %s", err, pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	b.tell(ending)
	b.endAll()
	return nil
}

func (b *Bridge) tell(away string) {
	b.o.Log.Warn(away)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}
