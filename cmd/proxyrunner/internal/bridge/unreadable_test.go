package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/harness"
)

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An answer that cannot be read ends the call that it answers, with the true cause: the client would wait for the whole
// timeout, and be advised to raise it. What only looks like an answer ends none.
func TestAnswerThatCannotBeRead(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":ID,"result":"good"}`
	for name, test := range map[string]struct{ why, printed, want string }{
		"NaN":              {"Python's json.dumps writes it", `{"jsonrpc":"2.0","id":ID,"result":{"v":NaN}}`, "invalid character 'N'"},
		"id last":          {"the order of members means nothing", `{"jsonrpc":"2.0","result":{"v":Infinity},"id":ID}`, "invalid character 'I'"},
		"a text behind":    {"a log without an end of line", `{"jsonrpc":"2.0","id":ID,"result":{}} done`, "invalid character 'd' after top-level value"},
		"two on a line":    {"two writers, and one end of line", `{"jsonrpc":"2.0","id":0,"result":{}}{"jsonrpc":"2.0","id":ID,"result":{}}`, "after top-level value"},
		"several lines":    {"an indented answer", "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": ID,\n  \"result\": {\n    \"content\": [\n      {}\n    ]\n  }\n}", "several lines"},
		"a line in a text": {"a line end that is not escaped", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"text\":\"a\nb\"}}", "several lines"},
		"cut off":          {"the next line begins a message", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"text\":\"a\n" + `{"jsonrpc":"2.0","method":"notifications/message"}`, "several lines"},
		"no jsonrpc":       {"a server of its own making", `{"id":ID,"result":{}}`, `jsonrpc must be "2.0"`},
		"another jsonrpc":  {"so does JSON-RPC 1", `{"jsonrpc":"1.0","id":ID,"error":{"code":1,"message":"x"}}`, `jsonrpc must be "2.0"`},
		"a list":           {"batches are given up", `[{"jsonrpc":"2.0","id":0,"result":{}},{"jsonrpc":"2.0","id":ID,"result":{}}]`, "a batch"},
		"id as a text":     {"and no JSON", `{"jsonrpc":"2.0","id":"ID","result":NaN}`, "invalid character 'N'"},

		"BOM":                   {"it is no part of the message", "\ufeff" + good, ""},
		"a log of the answer":   {"the answer comes next", "sending " + good + "\n" + good, ""},
		"a log with a level":    {"the same", "[INFO] " + good + "\n[x] {\n" + good, ""},
		"a structured log":      {"no member of it is JSON-RPC's alone", `{"level":"debug","id":ID,"result":{}}` + "\n" + good, ""},
		"another's":             {"it answers another call", `{"jsonrpc":"2.0","id":99,"result":NaN}` + "\n" + good, ""},
		"a request":             {"its id is the server's", `{"jsonrpc":"2.0","id":ID,"method":"roots/list","params":NaN}` + "\n" + good, ""},
		"an id inside":          {"it is part of a text", `{"jsonrpc":"2.0","result":{"id":ID,"v":NaN}}` + "\n" + good, ""},
		"something in brackets": {"a message ends what came before", "{ starting\n\"\n" + good, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			s, url := begin(t, bridge.Options{RequestTimeout: 3 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
			one := join(t, url)
			s.hear("notifications/initialized")
			got := inBackground(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/call"}`, one))
			id := fmt.Sprintf("%.0f", s.hear("x/call").ID)
			if _, err := fmt.Fprintln(s.conn, strings.ReplaceAll(test.printed, "ID", id)); err != nil {
				t.Fatal(err)
			}
			m := <-got
			if test.want == "" {
				if string(m.Result) != `"good"` {
					t.Errorf("the client got %+v: %s", m.Error, test.why)
				}
				return
			}
			if m.Error == nil || !strings.Contains(m.Error.Message, "the answer of the MCP server") || !strings.Contains(m.Error.Message, test.want) {
				t.Errorf("the client got %+v, want an error with %q: %s", m.Error, test.want, test.why)
			}
			if !strings.Contains(log.String(), "level=WARN msg=\"the MCP server printed an answer that cannot be read\"") {
				t.Errorf("the log has no warning: %s", log.String())
			}
		})
	}
}

// Some servers answer the id 1 with "1". No other text stands for a number.
func TestIDsThatComeBackAsTexts(t *testing.T) {
	s, url := begin(t, bridge.Options{RequestTimeout: 3 * time.Second})
	one := join(t, url)
	s.hear("notifications/initialized")
	stream := events(t, request{method: "GET", path: "/mcp", header: with(one, "Accept", "text/event-stream")}.do(t, url))
	got := inBackground(t, url, post(`{"jsonrpc":"2.0","id":"1","method":"x/call","params":{"_meta":{"progressToken":"p"}}}`, one))
	id := fmt.Sprintf("%.0f", s.hear("x/call").ID)
	for _, other := range []string{"0" + id, " " + id, id + ".0", "+" + id, id + "e0", "", "x", `\u0000` + id} {
		if _, err := fmt.Fprintf(s.conn, `{"jsonrpc":"2.0","id":"%s","result":"not %s"}`+"\n", other, id); err != nil {
			t.Fatal(err)
		}
	}
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": id, "progress": 1}})
	if p := stream.next(); p.Params["progressToken"] != "p" {
		t.Errorf("progress is %+v", p)
	}
	s.say(map[string]any{"id": id, "result": "done"})
	if m := <-got; m.ID != "1" || string(m.Result) != `"done"` {
		t.Errorf("the answer is %+v", m)
	}
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	number := fmt.Sprintf("%.0f", stream.next().ID)
	post(`{"jsonrpc":"2.0","id":"`+number+`","result":{"roots":[]}}`, one).do(t, url)
	if answer := s.hear(""); answer.ID != "q" || string(answer.Result) != `{"roots":[]}` {
		t.Errorf("the server got %+v as the client's answer", answer)
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
			b := bridge.New(bridge.Options{Open: func(context.Context) (io.ReadWriteCloser, error) {
				ours, theirs := net.Pipe()
				go func() {
					for in := bufio.NewScanner(theirs); in.Scan(); {
						var m message
						if json.Unmarshal(in.Bytes(), &m) == nil && m.Method == "initialize" {
							_, _ = fmt.Fprintf(theirs, test.answer+"\n", m.ID) // the bridge may have closed
						}
					}
				}()
				return ours, nil
			}})
			var run sync.WaitGroup
			run.Go(func() { _ = b.Run(t.Context()) })
			t.Cleanup(run.Wait)
			harness.Eventually(t, "the cause: "+test.why, func() error {
				if _, message := b.Health(); !strings.Contains(message, test.want) {
					return fmt.Errorf("%s, want %s", message, test.want)
				}
				return nil
			})
		})
	}
}
