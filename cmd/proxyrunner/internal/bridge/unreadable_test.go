package bridge_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
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
func TestAnswers(t *testing.T) {
	const good, warning = `{"jsonrpc":"2.0","id":ID,"result":"good"}`, "level=WARN msg=\"the MCP server printed an answer that cannot be read\""
	long := `"` + strings.Repeat(`x\"}{`, bridge.MaxLine/5) + `"`
	for name, test := range map[string]struct {
		why, printed string
		want         string // in the error; empty if the client gets the good answer
		warns        bool   // the log says it
	}{
		"NaN":              {"Python's json.dumps writes it", `{"jsonrpc":"2.0","id":ID,"result":{"v":NaN}}`, "invalid character 'N'", true},
		"id last":          {"the order of members means nothing", `{"jsonrpc":"2.0","result":{"v":Infinity},"id":ID}`, "invalid character 'I'", true},
		"a text behind":    {"a log without an end of line", `{"jsonrpc":"2.0","id":ID,"result":{}} done`, "invalid character 'd' after top-level value", true},
		"two on a line":    {"two writers, and one end of line", `{"jsonrpc":"2.0","id":0,"result":{}}{"jsonrpc":"2.0","id":ID,"result":{}}`, "after top-level value", true},
		"several lines":    {"an indented answer", "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": ID,\n  \"result\": {\n    \"content\": [\n      {}\n    ]\n  }\n}", "several lines", true},
		"a line in a text": {"a line end that is not escaped", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"text\":\"a\nb\"}}", "several lines", true},
		"cut off":          {"the next line begins a message", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"text\":\"a\n" + `{"jsonrpc":"2.0","method":"notifications/message"}`, "several lines", true},
		"no jsonrpc":       {"a server of its own making", `{"id":ID,"result":{}}`, `jsonrpc must be "2.0"`, true},
		"another jsonrpc":  {"so does JSON-RPC 1", `{"jsonrpc":"1.0","id":ID,"error":{"code":1,"message":"x"}}`, `jsonrpc must be "2.0"`, true},
		"a list":           {"batches are given up", `[{"jsonrpc":"2.0","id":0,"result":{}},{"jsonrpc":"2.0","id":ID,"result":{}}]`, "a batch", true},
		"id as a text":     {"and no JSON", `{"jsonrpc":"2.0","id":"ID","result":NaN}`, "invalid character 'N'", true},

		"BOM":                   {"it is no part of the message", "\ufeff" + good, "", false},
		"a log of the answer":   {"the answer comes next", "sending " + good + "\n" + good, "", false},
		"a log with a level":    {"the same", "[INFO] " + good + "\n[x] {\n" + good, "", false},
		"a structured log":      {"no member of it is JSON-RPC's alone", `{"level":"debug","id":ID,"result":{}}` + "\n" + good, "", false},
		"another's":             {"it answers another call", `{"jsonrpc":"2.0","id":99,"result":NaN}` + "\n" + good, "", false},
		"a request":             {"its id is the server's", `{"jsonrpc":"2.0","id":ID,"method":"roots/list","params":NaN}` + "\n" + good, "", false},
		"an id inside":          {"it is part of a text", `{"jsonrpc":"2.0","result":{"id":ID,"v":NaN}}` + "\n" + good, "", false},
		"something in brackets": {"a message ends what came before", "{ starting\n\"\n" + good, "", false},
		"no messages": {"some print a log; a call that is not there is not answered", "Listening on port 7\n\n" + `{"jsonrpc":"2.0"` + "\n[]\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}` + "\n" +
			`{"jsonrpc":"2.0","id":99,"result":{}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}` + "\n" + good, "", false},

		"too long":            {"as most write it", `{"jsonrpc":"2.0","id":ID,"result":` + long + `}`, "longer than", false},
		"too long, id last":   {"the order of members means nothing", `{"jsonrpc":"2.0","result":` + long + `,"id":ID}`, "longer than", false},
		"too long, id inside": {"nor do spaces", `{ "result" : {"id":1,"x":` + long + `} , "id" : ID , "jsonrpc":"2.0" }`, "longer than", false},

		"error null":  {"some write both members always", `{"jsonrpc":"2.0","id":ID,"result":"good","error":null}`, "", false},
		"neither":     {"the client would wait, or fail for no reason that it can see", `{"jsonrpc":"2.0","id":ID,"x":1}`, "neither a result nor an error", false},
		"both":        {"nobody knows which counts", `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`, "both a result and an error", false},
		"no error":    {"an error is an object", `{"jsonrpc":"2.0","id":ID,"error":"broken"}`, "cannot be read", false},
		"float of id": {"some programs know no integers", `{"jsonrpc":"2.0","id":ID.0,"result":"good"}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			s, url := begin(t, bridge.Options{RequestTimeout: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
			call, answer := s.ask(url, `{"jsonrpc":"2.0","id":"a","method":"x/call"}`, join(t, url))
			s.printf("%s", strings.ReplaceAll(test.printed, "ID", fmt.Sprintf("%.0f", call.ID)))
			m := <-answer
			if m.ID != "a" || test.want == "" && string(m.Result) != `"good"` || test.want != "" && !(m.Error != nil && strings.Contains(m.Error.Message, "the answer of the MCP server") && strings.Contains(m.Error.Message, test.want)) {
				t.Errorf("the client got %s, %+v, want an error with %q: %s", m.Result, m.Error, test.want, test.why)
			}
			if strings.Contains(log.String(), warning) != test.warns {
				t.Errorf("a warning is in the log: %v, want %v: %s", !test.warns, test.warns, log.String())
			}
		})
	}
}

// An error is the client's, with all that the server says; and any value is a result.
func TestAnswersPassUntouched(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	for _, said := range []string{`"result":null`, `"result":{}`, `"error":{"code":1,"message":"broken","data":{"a":1}}`} {
		answer := later(t, url, post(`{"jsonrpc":"2.0","id":"a","method":"x/call"}`, one))
		s.printf(`{"jsonrpc":"2.0","id":%.0f,%s}`, s.hear("x/call").ID, said)
		text, err := io.ReadAll((<-answer).Body)
		if !strings.Contains(string(text), said) {
			t.Errorf("%s is passed on as %s, %v", said, text, err)
		}
	}
}

// Some servers answer the id 1 with "1". No other text stands for a number.
func TestIDsThatComeBackAsTexts(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	in := stream(t, url, one)
	call, got := s.ask(url, `{"jsonrpc":"2.0","id":"1","method":"x/call","params":{"_meta":{"progressToken":"p"}}}`, one)
	id := fmt.Sprintf("%.0f", call.ID)
	for _, other := range []string{"0" + id, " " + id, id + ".0", "+" + id, id + "e0", "", "x", `\u0000` + id} {
		s.printf(`{"jsonrpc":"2.0","id":"%s","result":"not %s"}`, other, id)
	}
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": id, "progress": 1}})
	if p := in.next(); p.Params["progressToken"] != "p" {
		t.Errorf("progress is %+v", p)
	}
	s.say(map[string]any{"id": id, "result": "done"})
	if m := <-got; m.ID != "1" || string(m.Result) != `"done"` {
		t.Errorf("the answer is %+v", m)
	}
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	number := fmt.Sprintf("%.0f", in.next().ID)
	post(`{"jsonrpc":"2.0","id":"`+number+`","result":{"roots":[]}}`, one).do(t, url)
	if answer := s.hear(""); answer.ID != "q" || string(answer.Result) != `{"roots":[]}` {
		t.Errorf("the server got %+v as the client's answer", answer)
	}
}
