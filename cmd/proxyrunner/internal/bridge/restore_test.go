package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// A server that was replaced knows nothing of what its clients asked the one before to
// do for them, and they are told nothing of the replacement, unless a call was under way.
func TestNewServerIsToldWhatClientsAskedFor(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one, two := listening(t, bridge.ModeStreamableHTTP, url), listening(t, bridge.ModeStreamableHTTP, url)
	for n, step := range []struct {
		of             *client
		method, params string
	}{
		{one, "resources/subscribe", `{"uri":"file:///b"}`}, {one, "resources/subscribe", `{"uri":"file:///a"}`}, {two, "resources/subscribe", `{"uri":"file:///a"}`},
		{two, "resources/subscribe", `{"uri":"file:///c"}`}, {two, "resources/unsubscribe", `{"uri":"file:///c"}`},
		{one, "logging/setLevel", `{"level":"error"}`}, {two, "logging/setLevel", `{"level":"debug"}`},
	} {
		call, answer := s.ask(url, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, step.method, step.params), step.of.header)
		s.answer(call, map[string]any{})
		<-answer
	}

	_, lost := s.ask(url, `{"jsonrpc":"2.0","id":9,"method":"x/lost"}`, one.header)
	_ = s.conn.Close() // the process ends, and the next one is there
	if got := <-lost; got.Error == nil || !strings.Contains(got.Error.Message, "restarted") || !strings.Contains(got.Error.Message, "try again") {
		t.Errorf("the call under way is answered %+v, want an error that says that the server restarted", got)
	}
	s.connected().hear("notifications/initialized") // before anything else
	if len(s.greets) != 2 {
		t.Errorf("%d times initialised, want 2", len(s.greets))
	}
	var told []string
	for _, method := range []string{"logging/setLevel", "resources/subscribe", "resources/subscribe"} {
		call := s.hear(method)
		told = append(told, fmt.Sprint(call.Params["level"], call.Params["uri"]))
		s.answer(call, map[string]any{})
	}
	if diff := cmp.Diff([]string{"debug<nil>", "<nil>file:///a", "<nil>file:///b"}, told); diff != "" {
		t.Errorf("what the new server was told (-want +got):\n%s", diff)
	}
	// What changed meanwhile was told to nobody: clients read again.
	for _, c := range []*client{one, two} {
		if m := c.next(); m.Method != "notifications/resources/updated" || m.Params["uri"] != "file:///a" {
			t.Errorf("a client is told %+v, want that file:///a may have changed", m)
		}
	}
}
