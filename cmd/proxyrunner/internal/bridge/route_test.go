package bridge_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

func TestProgressAndCancellation(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one, two := join(t, url), join(t, url)
	other := stream(t, url, two)

	long, answer := s.askForStream(url, `{"jsonrpc":"2.0","id":"a","method":"x/long","params":{"_meta":{"progressToken":"mine","more":1}}}`, one)
	meta := long.Params["_meta"].(map[string]any)
	if meta["progressToken"] != long.ID || meta["more"] != 1.0 {
		t.Errorf("_meta is %v, want the number of the call as token, and the rest", meta)
	}
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": meta["progressToken"], "progress": 5}})
	feed := events(t, <-answer)
	if got := feed.next(); got.Method != "notifications/progress" || got.Params["progressToken"] != "mine" {
		t.Errorf("got %+v, want progress with the client's token", got)
	}

	cancel := func(header map[string]string) {
		t.Helper()
		if resp := post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`, header).do(t, url); resp.StatusCode != http.StatusAccepted {
			t.Errorf("cancelled: %s", resp.Status)
		}
	}
	cancel(two) // has no such call
	cancel(one)
	if got := s.hear("notifications/cancelled"); got.Params["requestId"] != long.ID {
		t.Errorf("cancelled %v, want %v", got.Params["requestId"], long.ID)
	}
	s.say(map[string]any{"id": long.ID, "error": map[string]any{"code": -1, "message": "cancelled"}})
	if got := feed.next(); got.ID != "a" || got.Error == nil {
		t.Errorf("got %+v, want the error of call a", got)
	}
	if _, err := feed.data(); err == nil {
		t.Error("the stream goes on after the answer")
	}

	s.say(map[string]any{"method": "notifications/tools/list_changed"})
	if got := other.next(); got.Method != "notifications/tools/list_changed" {
		t.Errorf("the other client got %+v, want only what concerns all", got)
	}
}

func TestQuestionsOfTheServer(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	answer := func(want string) {
		t.Helper()
		if got := s.hear(""); fmt.Sprint(got.ID) != "q" || (got.Error == nil) != (want == "") ||
			(got.Error != nil && !strings.Contains(got.Error.Message, want)) {
			t.Errorf("the server got %+v, want an error with %q", got, want)
		}
	}
	s.say(map[string]any{"id": "q", "method": "ping"})
	answer("")
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	answer("there are 0")

	one := join(t, url)
	in := stream(t, url, one)
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	question := in.next()
	reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"roots":[]}}`, question.ID)

	two := join(t, url)
	if resp := post(reply, two).do(t, url); resp.StatusCode != http.StatusAccepted {
		t.Errorf("an answer of the wrong client: %s", resp.Status)
	}
	if resp := post(reply, one).do(t, url); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the answer: %s", resp.Status)
	}
	answer("")
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	answer("there are 2")

	request{method: http.MethodDelete, path: "/mcp", header: two}.do(t, url)
	s.say(map[string]any{"id": "q", "method": "sampling/createMessage"})
	in.next()
	request{method: http.MethodDelete, path: "/mcp", header: one}.do(t, url)
	answer("the client is gone")
}
