package bridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

func TestEachClientHasItsVersion(t *testing.T) {
	for name, test := range map[string]struct {
		why, speaks, before string
		ask, want           []string
	}{
		"half a line": {"a proxy that was killed while it wrote leaves it behind: it is ended", "2025-11-25", `{"jsonrpc":"2.0","id":5,"method":"tools/ca`,
			[]string{"2025-11-25"}, []string{"2025-11-25"}},
		"one after the other": {"the first one decides nothing for the next", "2025-11-25", "",
			[]string{"2024-11-05", "2025-11-25", "2025-03-26"}, []string{"2024-11-05", "2025-11-25", "2025-03-26"}},
		"server is older": {"nobody can speak more than the server does", "2025-03-26", "",
			[]string{"2024-11-05", "2025-11-25"}, []string{"2024-11-05", "2025-03-26"}},
		"client is newer": {"it is told the newest there is, and decides", "2025-11-25", "",
			[]string{"2999-01-01"}, []string{"2025-11-25"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scripted(t)
			s.speaks, s.before = test.speaks, test.before
			_, url := start(t, bridge.Options{Open: s.open})
			var got []string
			for _, version := range test.ask {
				var result struct{ ProtocolVersion string }
				m := read(t, post(strings.Replace(initialize, "2025-06-18", version, 1), nil).do(t, url))
				if err := json.Unmarshal(m.Result, &result); err != nil {
					t.Fatalf("%+v: %v", m, err)
				}
				got = append(got, result.ProtocolVersion)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("versions (-want +got):\n%s%s", diff, test.why)
			}
			if asked := (<-s.greets).Params["protocolVersion"]; asked != "2025-11-25" || len(s.greets) > 0 {
				t.Errorf("the server was asked for %v, and %d times more; want the newest, once", asked, len(s.greets))
			}
		})
	}
}

// saying is bridge.Options.Open of a server that prints a line for each request, or none for an empty one.
func saying(answer func(m message) string) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		go func() {
			for in := bufio.NewScanner(theirs); in.Scan(); {
				var m message
				if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
					continue // a notification, or the end of a line that another proxy began
				}
				if line := answer(m); line != "" {
					_, _ = fmt.Fprintln(theirs, line) // the bridge may have closed
				}
			}
		}()
		return ours, nil
	}
}

// run runs a bridge in a bubble; stop ends it.
func run(t *testing.T, o bridge.Options) (b *bridge.Bridge, stop func()) {
	t.Helper()
	b = bridge.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = b.Run(ctx); close(ended) }()
	return b, func() { cancel(); <-ended }
}

func TestStoppedServerIsNotHealthy(t *testing.T) {
	for name, test := range map[string]struct {
		why     string
		answers time.Duration // for how long the server does
		healthy []bool        // after a second, two minutes and an hour
		starts  bool          // it is started again
	}{
		"never answers": {"it is not there before it has answered initialize", 0, []bool{false, false, false}, true},
		"stops":         {"it is asked now and then", 10 * time.Second, []bool{true, false, false}, true},
		"goes on":       {"it is quiet since nobody asks anything", 24 * time.Hour, []bool{true, true, true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				starts := 0
				b, stop := run(t, bridge.Options{Restart: func(context.Context) error { starts++; return nil }, Open: saying(func(m message) string {
					if time.Since(began) >= test.answers {
						return ""
					}
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
				})})
				var got []bool
				for _, pause := range []time.Duration{time.Second, 2 * time.Minute, time.Hour} {
					time.Sleep(pause)
					ok, _ := b.Health()
					got = append(got, ok)
				}
				if diff := cmp.Diff(test.healthy, got); diff != "" {
					t.Errorf("healthy (-want +got):\n%s%s", diff, test.why)
				}
				stop()
				if (starts > 0) != test.starts || starts > 13 {
					t.Errorf("started again %d times in an hour, want that: %v, and not all the time", starts, test.starts)
				}
			})
		})
	}
}

// A server that was not asked owes nothing. One that reads nothing fills the budget itself, and is started again.
func TestPingThatCannotBeSent(t *testing.T) {
	for name, test := range map[string]struct {
		why    string
		full   time.Duration // for how long there is no room for a ping
		starts int
	}{
		"for a while":   {"it has been silent for less than a minute", 30 * time.Second, 0},
		"for too long":  {"it may be why there is no room", 2 * time.Minute, 1},
		"before a ping": {"there is room again when one is due", 5 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts, requests := 0, limit.NewBudget(1<<20)
				b, stop := run(t, bridge.Options{Requests: requests, Restart: func(context.Context) error { starts++; return nil }, Open: saying(func(m message) string {
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`, m.ID)
				})})
				time.Sleep(time.Second)
				all := int(requests.Left())
				if !requests.Take(all) {
					t.Fatal("the greeting has not given back what it took")
				}
				time.Sleep(test.full)
				requests.Give(all)
				time.Sleep(2 * time.Minute)
				ok, said := b.Health()
				if stop(); !ok || starts != test.starts {
					t.Errorf("%s: started again %d times, want %d; healthy at last: %v, %s", test.why, starts, test.starts, ok, said)
				}
			})
		})
	}
}

// A server is initialised, too, if it answers with texts; and one that answers what cannot be read is named with the cause.
func TestGreetingOfOddServers(t *testing.T) {
	for name, test := range map[string]struct{ why, answer, want string }{
		"id as a text": {"it is understood", `{"jsonrpc":"2.0","id":"%.0f","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, "attached"},
		"NaN":          {"no timeout shows it", `{"jsonrpc":"2.0","id":%.0f,"result":NaN}`, "initialize: the answer of the MCP server is wrong: it is not JSON: invalid character 'N'"},
		"no jsonrpc":   {"the same", `{"id":%.0f,"result":{}}`, `initialize: the answer of the MCP server is wrong: jsonrpc must be "2.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, stop := run(t, bridge.Options{Open: saying(func(m message) string { return fmt.Sprintf(test.answer, m.ID) })})
				synctest.Wait()
				if _, message := b.Health(); !strings.Contains(message, test.want) {
					t.Errorf("%s: it is said to be %s, want %s", test.why, message, test.want)
				}
				stop()
			})
		})
	}
}
