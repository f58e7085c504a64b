package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// sessions call for loadTime, with a pause of thinkTime between two calls of one.
	loadSessions, loadTime, thinkTime = 1000, time.Minute, time.Second
	// ofEach is how many clients there are of each kind that does harm.
	ofEach = 20
	// atOnce is how many sessions are opened at a time.
	atOnce = 32
	// The runtime releases memory to the system bit by bit; it collects every two minutes where nothing happens.
	idleWithin, idleMiB = 10 * time.Minute, 32
)

// BenchmarkSessions has 1,000 sessions call the server alone, and then through the proxy,
// with slow, silent and vanishing clients beside them, for a minute each; run it with
// -benchtime 1x. What each call must answer differs, so that an answer that went to
// another session is seen.
func BenchmarkSessions(b *testing.B) {
	for _, transport := range httpTransports {
		b.Run(transport, func(b *testing.B) {
			for b.Loop() {
				w := lonely(b, transport)
				w.startEcho()
				w.startProxy()
				w.await("healthy")
				before := resourcesOf(b, w.proxy.PID())
				direct, proxied := w.load(w.echoAddress()), w.load(w.address)
				peak := resourcesOf(b, w.proxy.PID())
				b.ReportMetric(0, "ns/op") // hides it
				direct.report(b, "direct")
				proxied.report(b, "proxied")
				b.ReportMetric(peak.peak, "peak-MiB")
				var after usage
				ended := time.Now()
				harness.Eventually(b, "the proxy to let its clients go", func() error {
					if after = resourcesOf(b, w.proxy.PID()); after.files > before.files+8 {
						return fmt.Errorf("%d open files, %d before", after.files, before.files)
					}
					return nil
				})
				b.ReportMetric(float64(after.files-before.files), "files-left")
				err := harness.Await(b.Context(), "the proxy to release memory", idleWithin, func(context.Context) error {
					if after = resourcesOf(b, w.proxy.PID()); after.resident > before.resident+idleMiB {
						return fmt.Errorf("%.0f MiB, %.0f before", after.resident, before.resident)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(before.resident, "idle-before-MiB")
				b.ReportMetric(after.resident, "idle-after-MiB")
				b.ReportMetric(time.Since(ended).Seconds(), "idle-after-s")
			}
		})
	}
}

// figures are what the sessions that do no harm have seen.
type figures struct {
	took          []time.Duration
	failed, wrong int64
	wall          time.Duration
}

func (f *figures) report(b *testing.B, way string) {
	if len(f.took) == 0 {
		b.Fatalf("%s: no call was answered, %d failed", way, f.failed)
	}
	slices.Sort(f.took)
	of := func(part float64) float64 {
		return float64(f.took[int(part*float64(len(f.took)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(float64(len(f.took))/f.wall.Seconds(), way+"-calls/s")
	b.ReportMetric(of(0.5), way+"-p50-ms")
	b.ReportMetric(of(0.99), way+"-p99-ms")
	b.ReportMetric(float64(f.failed), way+"-failed")
	b.ReportMetric(float64(f.wrong), way+"-mismatched")
	if f.wrong > 0 {
		b.Errorf("%s: %d answers were those of other calls", way, f.wrong)
	}
}

// load opens all sessions, and then has them call, with those that do harm beside them.
func (w *world) load(address string) *figures {
	w.Helper()
	sessions := make([]*mcp.ClientSession, loadSessions)
	var opening errgroup.Group
	opening.SetLimit(atOnce)
	for n := range sessions {
		opening.Go(func() (err error) {
			sessions[n], err = w.connect(address)
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), loadTime)
	defer cancel()
	var all sync.WaitGroup
	for _, harm := range []func(context.Context, *world, string){slowly, silently, vanishing} {
		for range ofEach {
			all.Go(func() { harm(ctx, w, address) })
		}
	}
	f, began := &figures{}, time.Now()
	var mu sync.Mutex
	var failed, wrong atomic.Int64
	for n, session := range sessions {
		all.Go(func() {
			var took []time.Duration
			pause(ctx, thinkTime)
			for call := 0; ctx.Err() == nil; call++ {
				at := time.Now()
				switch err := say(w.Context(), session, fmt.Sprintf("%d/%d", n, call)); {
				case errors.Is(err, errOtherAnswer):
					wrong.Add(1)
				case err != nil:
					failed.Add(1)
				default:
					took = append(took, time.Since(at))
				}
				pause(ctx, thinkTime)
			}
			mu.Lock()
			defer mu.Unlock()
			f.took = append(f.took, took...)
		})
	}
	all.Wait()
	f.wall, f.failed, f.wrong = time.Since(began), failed.Load(), wrong.Load()
	for _, session := range sessions {
		opening.Go(session.Close)
	}
	if err := opening.Wait(); err != nil {
		w.Logf("sessions that did not end as they should: %v", err)
	}
	return f
}

// pause is about that long, or until ctx is done.
func pause(ctx context.Context, about time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(about/2 + rand.N(about)):
	}
}

// raw is a connection to which a client writes what it likes.
func raw(ctx context.Context, address string) (net.Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err == nil {
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	return conn, err
}

const longCall = "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000000\r\n\r\n"

// slowly sends a body byte by byte, over and over.
func slowly(ctx context.Context, _ *world, address string) {
	for ctx.Err() == nil {
		conn, err := raw(ctx, address)
		for text := longCall; err == nil; text = " " {
			_, err = io.WriteString(conn, text)
			pause(ctx, 100*time.Millisecond)
		}
		pause(ctx, time.Second)
	}
}

// silently sends half a body, and says and reads nothing any more.
func silently(ctx context.Context, _ *world, address string) {
	for ctx.Err() == nil {
		conn, err := raw(ctx, address)
		if err == nil {
			_, _ = io.WriteString(conn, longCall+strings.Repeat(" ", 500_000)) // closed meanwhile, it is opened again
		}
		pause(ctx, 40*time.Second)
	}
}

// vanishing opens a session, calls, and is gone with all its connections before it is
// answered.
func vanishing(ctx context.Context, w *world, address string) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		transport := &http.Transport{DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(within, network, address)
			if err == nil {
				context.AfterFunc(within, func() { _ = conn.Close() })
			}
			return conn, err
		}}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "gone", Version: "1"}, nil).Connect(within, w.transportOf(&http.Client{Transport: transport}, address), nil)
		if err == nil {
			time.AfterFunc(time.Millisecond, cancel)
			_ = say(within, session, "never mind") // nobody waits
		}
		cancel()
		pause(ctx, time.Second)
	}
}

// usage is what a process holds.
type usage struct {
	resident, peak float64 // MiB
	files          int
}

var memory = regexp.MustCompile(`(?m)^Vm(HWM|RSS):\s+(\d+) kB$`)

func resourcesOf(t testing.TB, pid int) (u usage) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range memory.FindAllStringSubmatch(string(text), -1) {
		kb, _ := strconv.ParseFloat(m[2], 64) // digits
		if m[1] == "HWM" {
			u.peak = kb / 1024
		} else {
			u.resident = kb / 1024
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	u.files = len(files)
	return u
}
