package bridge_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// Readers that read are not slow because much comes at once: none of them reads
// before all has been said.
func TestBurstReachesAllReaders(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			const readers = 3
			s, url := begin(t, bridge.Options{Mode: mode})
			var clients []*client
			for range readers {
				clients = append(clients, listening(t, mode, url))
			}
			for n := range burst {
				s.say(map[string]any{"method": "notifications/tools/list_changed", "params": map[string]any{"n": n, "text": fmt.Sprintf("%32768d", n)}})
			}
			for c, client := range clients {
				for n := range burst {
					if got := client.next(); got.Params["n"] != float64(n) {
						t.Fatalf("client %d: message %v, want %d", c, got.Params["n"], n)
					}
				}
			}
		})
	}
}

// Progress that comes at once is not lost either.
func TestBurstOfProgress(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	call, answer := s.askForStream(url, `{"jsonrpc":"2.0","id":1,"method":"x/call","params":{"_meta":{"progressToken":"p"}}}`, join(t, url))
	for n := range burst {
		s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{
			"progressToken": call.ID, "progress": n, "message": fmt.Sprintf("%32768d", n)}})
	}
	s.answer(call, 1)
	feed, got := events(t, <-answer), 0
	for m := feed.next(); m.ID == nil; m = feed.next() {
		got++
	}
	if diff := cmp.Diff(burst, got); diff != "" {
		t.Errorf("reports of progress (-want +got):\n%s", diff)
	}
}
