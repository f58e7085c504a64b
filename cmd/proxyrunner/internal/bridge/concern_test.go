package bridge_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// marker concerns all, and so shows that nothing came before it.
var marker = map[string]any{"method": "notifications/prompts/list_changed"}

// TestNotificationGoesToWhomItConcerns has two clients, each with an open stream,
// and calls that are under way while the server says something.
func TestNotificationGoesToWhomItConcerns(t *testing.T) {
	const changed, said, updated = "notifications/tools/list_changed", "notifications/message", "notifications/resources/updated"
	for name, test := range map[string]struct {
		why   string
		calls []int // of which client one is under way
		says  string
		uri   string
		want  []string // what each client's stream has
	}{
		"a list changed":             {"all have read it", []int{0}, changed, "", []string{changed, changed}},
		"a log, no call":             {"it is about the server", nil, said, "", []string{said, said}},
		"a log, calls of one":        {"it may tell what that one asked", []int{0, 0}, said, "", []string{said, ""}},
		"a log, calls of both":       {"nobody can say whose it is", []int{0, 1}, said, "", []string{"", ""}},
		"a resource changed":         {"the first one has subscribed to it", nil, updated, "file:///a", []string{updated, ""}},
		"part of a resource changed": {"that is part of the subscription", nil, updated, "file:///a/b", []string{updated, ""}},
		"another resource changed":   {"the second one has unsubscribed", nil, updated, "file:///c", []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := begin(t, bridge.Options{})
			clients := []*client{listening(t, bridge.ModeStreamableHTTP, url), listening(t, bridge.ModeStreamableHTTP, url)}
			ask := func(n, id int, method, params string) (message, <-chan message) {
				t.Helper()
				return s.ask(url, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params), clients[n].header)
			}
			for n, step := range []struct {
				client      int
				method, uri string
			}{{0, "resources/subscribe", "file:///a"}, {1, "resources/subscribe", "file:///c"}, {1, "resources/unsubscribe", "file:///c"}} {
				call, answer := ask(step.client, 100+n, step.method, fmt.Sprintf(`{"uri":%q}`, step.uri))
				s.answer(call, map[string]any{})
				<-answer
			}
			var ends []func()
			for id, n := range test.calls {
				call, answer := ask(n, id, "x/call", "{}")
				ends = append(ends, func() { s.answer(call, 1); <-answer })
			}
			s.say(map[string]any{"method": test.says, "params": map[string]any{"uri": test.uri}})
			for _, end := range ends {
				end()
			}
			s.say(marker)
			var got []string
			for _, c := range clients {
				first := c.next().Method
				if first == marker["method"] {
					first = ""
				}
				got = append(got, first)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("what the clients were told (-want +got):\n%s%s", diff, test.why)
			}
		})
	}
}

// The server keeps a subscription as long as a session has it, and no longer: else it would tell for ever what nobody reads.
func TestServerIsUnsubscribed(t *testing.T) {
	const subscribe, unsubscribe = "resources/subscribe", "resources/unsubscribe"
	about := func(method string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"uri":"file:///a"}}`, method)
	}
	for name, leave := range map[string]func(header map[string]string) request{
		"sessions end":        func(header map[string]string) request { return request{http.MethodDelete, "/mcp", "", header} },
		"clients unsubscribe": func(header map[string]string) request { return post(about(unsubscribe), header) },
	} {
		t.Run(name, func(t *testing.T) {
			s, url := begin(t, bridge.Options{})
			var clients []map[string]string
			for range 2 {
				header := join(t, url)
				call, answer := s.ask(url, about(subscribe), header)
				s.answer(call, map[string]any{})
				<-answer
				clients = append(clients, header)
			}
			var left sync.WaitGroup
			for _, header := range clients { // at the same time: one of them is the last
				left.Go(func() { leave(header).do(t, url) })
			}
			got := s.hear(unsubscribe)
			s.answer(got, map[string]any{})
			left.Wait()
			if got.Params["uri"] != "file:///a" {
				t.Errorf("the server was told %v", got.Params)
			}
		})
	}
}

// What another client is about to subscribe to is kept as well: the server would end it behind that client's back.
func TestSubscriptionUnderWayIsKept(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	first, second := join(t, url), join(t, url)
	subscribe := `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}`
	call, subscribed := s.ask(url, subscribe, first)
	s.answer(call, map[string]any{})
	<-subscribed
	underWay, subscribed := s.ask(url, subscribe, second)
	request{http.MethodDelete, "/mcp", "", first}.do(t, url)
	call, next := s.ask(url, `{"jsonrpc":"2.0","id":2,"method":"x/next"}`, second) // the server does not hear that somebody unsubscribes
	s.answer(underWay, map[string]any{})
	s.answer(call, map[string]any{})
	<-subscribed
	<-next
}

// A log goes to the stream of the call that it belongs to, if that is certain.
func TestLogOfTheOnlyCall(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	call, answer := s.askForStream(url, `{"jsonrpc":"2.0","id":1,"method":"x/call"}`, join(t, url))
	s.say(map[string]any{"method": "notifications/message", "params": map[string]any{"data": "x"}})
	s.answer(call, 1)
	feed := events(t, <-answer)
	if got := []string{feed.next().Method, fmt.Sprint(feed.next().ID)}; got[0] != "notifications/message" || got[1] != "1" {
		t.Errorf("the stream of the call has %v, want the log and the answer", got)
	}
}

// What no client can answer fails at once: the server does not wait for it.
func TestQuestionThatNobodyCanAnswer(t *testing.T) {
	able := `{"sampling":{},"elicitation":{}}`
	for name, test := range map[string]struct {
		why, capabilities, method string
		stream                    bool
		call                      string // Accept of a call under way; empty for none
		want                      string // in the error; empty if the client is asked
	}{
		"no stream":              {"nobody would read it", able, "sampling/createMessage", false, "", "no stream open"},
		"no stream, elicitation": {"the same", able, "elicitation/create", false, "", "no stream open"},
		"call without a stream":  {"its answer is one object", able, "sampling/createMessage", false, "application/json", "no stream open"},
		"call with a stream":     {"the specification wants it there", able, "sampling/createMessage", false, "application/json, text/event-stream", ""},
		"stream":                 {"it is read there", able, "elicitation/create", true, "", ""},
		"not able":               {"the client has said what it can do", `{"elicitation":{}}`, "sampling/createMessage", true, "", "does not support sampling"},
	} {
		t.Run(name, func(t *testing.T) {
			s, url := begin(t, bridge.Options{})
			resp := post(strings.Replace(initialize, `"capabilities":{"roots":{},"sampling":{}}`, `"capabilities":`+test.capabilities, 1), nil).do(t, url)
			header := map[string]string{"Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id")}
			var in feed
			if test.stream {
				in = stream(t, url, header)
			}
			var answer <-chan *http.Response
			var call message
			if test.call != "" {
				answer = later(t, url, post(`{"jsonrpc":"2.0","id":1,"method":"x/call"}`, with(header, "Accept", test.call)))
				call = s.hear("x/call")
			}
			s.say(map[string]any{"id": "q", "method": test.method})
			if test.want == "" {
				if test.call != "" {
					in = events(t, <-answer)
				}
				if got := in.next(); got.Method != test.method {
					t.Errorf("the client was asked %+v: %s", got, test.why)
				}
				return
			}
			if got := s.hear(""); got.ID != "q" || got.Error == nil || !strings.Contains(got.Error.Message, test.want) {
				t.Errorf("the server was told %+v, want an error with %q: %s", got, test.want, test.why)
			}
			if test.call != "" {
				s.answer(call, 1)
				<-answer
			}
		})
	}
}
