package bridge_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// Some servers keep ids in 32 bits (facts/real-clients.md): a greater one never
// comes back.
func TestNumbersFitInto31Bits(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	one := join(t, url)
	in := stream(t, url, one)
	fits := func(what string, number any) {
		t.Helper()
		if n, ok := number.(float64); !ok || n < 1 || n > math.MaxInt32 {
			t.Errorf("%s is %v, want a number that fits into 31 bits", what, number)
		}
	}
	call, answer := s.ask(url, `{"jsonrpc":"2.0","id":9007199254740991,"method":"x/a","params":{"_meta":{"progressToken":"p"}}}`, one)
	fits("the id of a call", call.ID)
	fits("its progress token", call.Params["_meta"].(map[string]any)["progressToken"])
	s.say(map[string]any{"id": "q", "method": "roots/list"})
	fits("the id of a question", in.next().ID)
	float := json.RawMessage(fmt.Sprintf("%.1f", call.ID)) // as a server writes it that knows no integers
	s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": float, "progress": 1}})
	if got := in.next(); got.Params["progressToken"] != "p" {
		t.Errorf("got %+v, want progress with the client's token", got)
	}
	s.say(map[string]any{"id": int32(call.ID.(float64)), "result": "done"}) // as such a server keeps it
	if diff := cmp.Diff(`9.007199254740991e+15 "done"`, func() string { m := <-answer; return fmt.Sprint(m.ID, " ", string(m.Result)) }()); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
}
