package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// envBefore names another build of the proxy, with which TestCompareBuilds compares that of `make build`.
const envBefore = "PROXYRUNNER_BEFORE"

const (
	// Builds are measured in turns of turnTime, so that what else the machine does falls on both.
	turns, turnTime = 6, 5 * time.Second
	// The sessions of the latency have breath between two calls.
	breath = 20 * time.Millisecond
	// idleSessions are those of idleClients: one client may not have so many.
	idleSessions, idleClients = 10_000, 2
	halfSent, halfBytes       = 40, 4 << 20
	// The end comes after endAfter of about endRate calls a second. Callers go on until endpoints would have told them: the proxy
	// listens a second longer.
	endRate, endCallers, endAfter, endGoesOn = 1600, 64, 3 * time.Second, 4 * time.Second
)

// build is one of the two, and what was measured of it.
type build struct {
	name    string
	world   *world
	client  *http.Client
	figures map[string][]float64
	wrong   atomic.Int64
	calls   atomic.Int64
}

// TestCompareBuilds measures two builds in front of servers of stdio and of sse, in turns, and prints both and their ratios:
//
//	PROXYRUNNER_BEFORE=/path/to/proxyrunner go test -run TestCompareBuilds -v -timeout 30m ./cmd/proxyrunner
//
// It asserts that no call gets the answer of another, and that none is lost at the end.
func TestCompareBuilds(t *testing.T) {
	before := os.Getenv(envBefore)
	if before == "" {
		t.Skipf("%s names no other build", envBefore)
	}
	for _, transport := range []string{"stdio", "streamable-http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			builds := []*build{newBuild(t, "before", transport, before), newBuild(t, "after", transport, "")}
			rows := []string{}
			inTurns := func(what string, measure func(*build, *testing.T) []figure) {
				for range turns {
					for _, b := range builds {
						for _, f := range measure(b, t) {
							name := what + f.name
							if b.figures[name] = append(b.figures[name], f.value); !slices.Contains(rows, name) {
								rows = append(rows, name)
							}
						}
					}
				}
			}
			eight, one, many := openEach(builds, t, 8), openEach(builds, t, 1), openEach(builds, t, 1000)
			inTurns("8 sessions with pauses, ", func(b *build, t *testing.T) []figure { return b.load(t, eight[b], breath) })
			inTurns("1 session, ", func(b *build, t *testing.T) []figure { return b.load(t, one[b], 0) })
			inTurns("1,000 sessions, ", func(b *build, t *testing.T) []figure { return b.load(t, many[b], 0) })
			for _, b := range builds {
				rows = append(rows, b.once(t)...)
			}
			t.Log("\n" + compared(builds, rows))
			for _, b := range builds {
				t.Logf("%s: %d calls whose ids are those of calls of other sessions, %d got another answer", b.name, b.calls.Load(), b.wrong.Load())
				if b.wrong.Load() > 0 {
					t.Errorf("%s: answers of other calls", b.name)
				}
			}
		})
	}
}

type figure struct {
	name  string
	value float64
}

func newBuild(t *testing.T, name, transport, path string) *build {
	t.Helper()
	var w *world
	if transport == "stdio" {
		w = lonelyWith(t, transport, container.Run(t, container.Echo(t)))
	} else {
		w = lonely(t, transport)
		w.startEcho()
	}
	w.config.TrustProxyHeaders, w.program = true, path
	w.startProxy()
	w.await("healthy")
	pool := &http.Transport{MaxIdleConns: 2000, MaxIdleConnsPerHost: 2000}
	t.Cleanup(pool.CloseIdleConnections)
	return &build{name: name, world: w, client: &http.Client{Transport: pool, Timeout: time.Minute}, figures: map[string][]float64{}}
}

// post sends a message, and answers what comes with its last event, or as an object.
func (b *build) post(ctx context.Context, session, from, body string) (answer, id string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.world.address+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "X-Forwarded-For": {from}}
	if session != "" {
		r.Header["Mcp-Session-Id"], r.Header["Mcp-Protocol-Version"] = []string{session}, []string{"2025-06-18"}
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	_, data, found := strings.Cut(string(text), "data: {")
	if answer = string(text); found {
		answer = "{" + data
	}
	return answer, resp.Header.Get("Mcp-Session-Id"), err
}

// open begins a session for a client.
func (b *build) open(ctx context.Context, from string) (string, error) {
	_, id, err := b.post(ctx, "", from, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if err == nil && id == "" {
		err = errors.New("no session")
	}
	if err == nil {
		_, _, err = b.post(ctx, id, from, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return id, err
}

// say calls, and counts an answer that is another call's.
func (b *build) say(ctx context.Context, session string, id int, text string) error {
	answer, _, err := b.post(ctx, session, "10.0.0.1", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":%q}}}`, id, text))
	if err != nil {
		return err
	}
	var m struct {
		ID     int
		Result struct{ Content []struct{ Text string } }
	}
	b.calls.Add(1)
	if err := json.NewDecoder(strings.NewReader(answer)).Decode(&m); err != nil || m.ID != id || len(m.Result.Content) != 1 || m.Result.Content[0].Text != text {
		b.wrong.Add(1)
	}
	return nil
}

// caller is a session, which calls under an id that is also one of each other session.
type caller func(ctx context.Context, id int, text string) error

// openEach opens that many sessions of each build.
func openEach(builds []*build, t *testing.T, n int) map[*build][]caller {
	t.Helper()
	all := map[*build][]caller{}
	for _, b := range builds {
		all[b] = b.sessions(t, n, 1)
	}
	return all
}

func (b *build) sessions(t *testing.T, n, clients int) []caller {
	t.Helper()
	all := make([]caller, n)
	var opening errgroup.Group
	opening.SetLimit(atOnce)
	for i := range all {
		opening.Go(func() (err error) {
			if b.world.config.Transport == "sse" {
				all[i], err = b.openSSE()
				return err
			}
			session, err := b.open(t.Context(), fmt.Sprintf("10.0.0.%d", 1+i%clients))
			all[i] = func(ctx context.Context, id int, text string) error { return b.say(ctx, session, id, text) }
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		t.Fatalf("%s: %v", b.name, err)
	}
	return all
}

// openSSE is open for a client of the SDK, which numbers its calls itself.
func (b *build) openSSE() (caller, error) {
	session, err := b.world.connect(b.world.address)
	if err != nil {
		return nil, err
	}
	b.world.Cleanup(func() { _ = session.Close() }) // the proxy may be gone by then
	return func(ctx context.Context, _ int, text string) error {
		b.calls.Add(1)
		err := say(ctx, session, text)
		if errors.Is(err, errOtherAnswer) {
			b.wrong.Add(1)
			return nil
		}
		return err
	}, nil
}

// cpu is how long a process has computed.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var user, system time.Duration
	_, of, _ := strings.Cut(string(text), ") ") // behind its name
	if fields := strings.Fields(of); len(fields) > 12 {
		_, err = fmt.Sscan(fields[11]+" "+fields[12], (*int64)(&user), (*int64)(&system))
	}
	if err != nil {
		t.Fatal(err)
	}
	return (user + system) * 10 * time.Millisecond // ticks
}

// load has sessions call for a turn, with pauses of about that long.
func (b *build) load(t *testing.T, sessions []caller, between time.Duration) []figure {
	t.Helper()
	began := cpu(t, b.world.proxy.PID())
	ctx, cancel := context.WithTimeout(t.Context(), turnTime)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for n, session := range sessions {
		all.Go(func() {
			var own []time.Duration
			for call := 1; ctx.Err() == nil; call++ {
				at := time.Now()
				if err := session(t.Context(), call, fmt.Sprintf("%d/%d", n, call)); err != nil {
					t.Errorf("%s: %v", b.name, err)
					return
				}
				if own = append(own, time.Since(at)); between > 0 {
					pause(ctx, between)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	all.Wait()
	slices.Sort(took)
	at := func(part float64) float64 {
		return float64(took[int(part*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	computed := cpu(t, b.world.proxy.PID()) - began
	return []figure{{"p50 ms", at(0.5)}, {"p99 ms", at(0.99)}, {"calls/s", float64(len(took)) / turnTime.Seconds()},
		{"CPU µs/call", float64(computed.Microseconds()) / float64(len(took))}}
}

// once measures what changes the build for good, and ends it.
func (b *build) once(t *testing.T) (rows []string) {
	t.Helper()
	note := func(name string, value float64) {
		rows = append(rows, name)
		b.figures[name] = append(b.figures[name], value)
	}
	pid := b.world.proxy.PID()
	note("MiB with 1,009 sessions", resourcesOf(t, pid).resident)
	if b.world.config.Transport == "stdio" {
		b.sessions(t, idleSessions, idleClients)
		b.client.CloseIdleConnections()
		note("MiB with 10,000 idle sessions", resourcesOf(t, pid).resident)
	}
	if b.world.config.Transport == "sse" {
		return rows // its clients post few bytes, and their streams are cut at the end
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range halfSent {
		conn, err := raw(ctx, b.world.address)
		if err != nil {
			t.Fatal(err)
		}
		go func() { // the proxy may refuse it
			_, _ = fmt.Fprintf(conn, strings.Replace(longCall, "1000000", "%d", 1)+"%s", 2*halfBytes, strings.Repeat(" ", halfBytes))
		}()
	}
	time.Sleep(3 * time.Second) // until they have arrived
	note("MiB with 40 half-sent bodies", resourcesOf(t, pid).resident)
	cancel()
	time.Sleep(time.Second)
	answered, lost := b.end(t)
	note("calls answered around SIGTERM", float64(answered))
	note("calls lost at SIGTERM", float64(lost))
	return rows
}

// end has callers call at a rate when the proxy is told to end. Lost is a call that has no answer.
func (b *build) end(t *testing.T) (answered, lost int64) {
	t.Helper()
	sessions := b.sessions(t, endCallers, 1)
	ctx, cancel := context.WithTimeout(t.Context(), endAfter+endGoesOn)
	defer cancel()
	var ok, failed atomic.Int64
	var all sync.WaitGroup
	for n, session := range sessions {
		all.Go(func() {
			for call := 1; ctx.Err() == nil; call++ {
				if err := session(t.Context(), call, fmt.Sprintf("%d/%d", n, call)); err != nil {
					failed.Add(1)
					t.Errorf("%s: a call at the end: %v", b.name, err)
				} else {
					ok.Add(1)
				}
				time.Sleep(time.Second * endCallers / endRate)
			}
		})
	}
	time.Sleep(endAfter)
	if err := b.world.proxy.Stop(grace); err != nil {
		t.Errorf("%s: %v", b.name, err)
	}
	all.Wait()
	return ok.Load(), failed.Load()
}

// compared is a table of medians, and of the ratios of the turns in which each build did best: there the machine did least else.
func compared(builds []*build, rows []string) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\t%s\t%s\tratio\tratio of the best\t\n", builds[0].name, builds[1].name)
	for _, row := range slices.Compact(slices.Sorted(slices.Values(rows))) {
		old, now := builds[0].figures[row], builds[1].figures[row]
		best := slices.Min[[]float64]
		if strings.HasSuffix(row, "calls/s") {
			best = slices.Max
		}
		a, b := median(old), median(now)
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", row, a, b, b/a, best(now)/best(old))
	}
	_ = table.Flush() // into memory
	return text.String()
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	of = slices.Sorted(slices.Values(of))
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
