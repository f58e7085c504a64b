package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

func TestEachClientHasItsVersion(t *testing.T) {
	for name, test := range map[string]struct {
		why, speaks string
		ask, want   []string
	}{
		"one after the other": {"the first one decides nothing for the next", "2025-11-25",
			[]string{"2024-11-05", "2025-11-25", "2025-03-26"}, []string{"2024-11-05", "2025-11-25", "2025-03-26"}},
		"server is older": {"nobody can speak more than the server does", "2025-03-26",
			[]string{"2024-11-05", "2025-11-25"}, []string{"2024-11-05", "2025-03-26"}},
		"client is newer": {"it is told the newest there is, and decides", "2025-11-25",
			[]string{"2999-01-01"}, []string{"2025-11-25"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scripted(t)
			s.speaks = test.speaks
			_, url := start(t, bridge.Options{Open: s.open})
			check := func() {
				t.Helper()
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
			}
			check()
			if asked := (<-s.greets).Params["protocolVersion"]; asked != "2025-11-25" {
				t.Errorf("the server was asked for %v, want the newest", asked)
			}
		})
	}
}

// A proxy that was killed while it wrote leaves half a line behind.
func TestHalfALineIsEnded(t *testing.T) {
	s := scripted(t)
	s.before = `{"jsonrpc":"2.0","id":5,"method":"tools/ca`
	_, url := start(t, bridge.Options{Open: s.open, RequestTimeout: 5 * time.Second})
	if resp := post(initialize, nil).do(t, url); resp.StatusCode != http.StatusOK {
		t.Errorf("initialize: %s: the line of the proxy before was not ended", resp.Status)
	}
}

func TestAnswerThatIsTooLong(t *testing.T) {
	long := `"` + strings.Repeat(`x\"}{`, bridge.MaxLine/5) + `"`
	for name, test := range map[string]struct{ why, line string }{
		"id first":  {"as most write it", `{"jsonrpc":"2.0","id":%.0f,"result":` + long + `}`},
		"id last":   {"the order of members means nothing", `{"jsonrpc":"2.0","result":` + long + `,"id":%.0f}`},
		"id inside": {"nor do spaces", `{ "result" : {"id":1,"x":` + long + `} , "id" : %.0f , "jsonrpc":"2.0" }`},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := begin(t, bridge.Options{}) // long enough to read the answer with the race detector on a busy machine
			one := join(t, url)
			s.hear("notifications/initialized")
			got := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/big"}`, one))
			big := s.hear("x/big")
			if _, err := fmt.Fprintf(s.conn, test.line+"\n", big.ID); err != nil {
				t.Fatal(err)
			}
			if m := <-got; m.Error == nil || !strings.Contains(m.Error.Message, "longer than") {
				t.Errorf("got %+v, want an error that tells the limit: %s", m, test.why)
			}
		})
	}
}

// silent answers initialize and, after that, as long as it is told to.
type silent struct{ opened int }

func (s *silent) open(answer func() bool) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		s.opened++
		ours, theirs := net.Pipe()
		go func() {
			in := json.NewDecoder(theirs)
			for {
				var m message
				if in.Decode(&m) != nil {
					return
				}
				if m.ID != nil && answer() {
					_, _ = fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%.0f,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`+"\n", m.ID)
				}
			}
		}()
		return ours, nil
	}
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
				s, starts := &silent{}, 0
				b := bridge.New(bridge.Options{Restart: func(context.Context) error { starts++; return nil }, Open: s.open(func() bool { return time.Since(began) < test.answers })})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { _ = b.Run(ctx); close(ended) }()
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
				<-ended
				if (starts > 0) != test.starts || starts > 13 {
					t.Errorf("started again %d times in an hour, want that: %v, and not all the time", starts, test.starts)
				}
			})
		})
	}
}
