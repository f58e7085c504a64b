package limit_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

const (
	// most is what they may make the proxy hold: the budget of one direction, and as
	// much again for what is being read and written.
	most = 128 << 20
	// answer is how long the server's answers are.
	answer = 4 << 20
)

// proxies make what stands in front of either kind of server.
var proxies = map[string]func(t *testing.T) front.Server{
	"stdio": func(t *testing.T) front.Server {
		b, detach := attached(t, strings.Repeat("x", answer), bridge.Options{})
		t.Cleanup(detach)
		return b
	},
	"http": func(t *testing.T) front.Server {
		l := memnet.Listen()
		text := make([]byte, answer)
		backend := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second) // on the clock of the bubble: the header has passed by then
			_, _ = w.Write(text)
		})}
		go func() { _ = backend.Serve(l) }()
		t.Cleanup(func() { _ = backend.Close() })
		return relay.New(relay.Options{Target: &url.URL{Scheme: "http", Host: "x"}, Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }})
	},
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryOfClientsThatStop(t *testing.T) {
	call := func(size int) string {
		head := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"`
		return head + strings.Repeat("x", size-len(head)-3) + `"}}`
	}
	post := func(length int) string {
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n", length)
	}
	large := call(rpcerror.MaxBody)
	for name, sends := range map[string]string{
		"bodies that lack a byte": post(rpcerror.MaxBody) + large[:rpcerror.MaxBody-1],
		"answers that are unread": post(len(call(100))) + call(100),
	} {
		sent := []byte(sends)
		for transport, proxy := range proxies {
			t.Run(name+"/"+transport, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					crowd, stop := opened(t, proxy(t))
					before := heap()
					for range clients {
						c := crowd.dial()
						go func() {
							_, _ = c.Write(sent) // the proxy may refuse it
							// The header is read: ReverseProxy flushes it under a mutex, and a bubble
							// does not know that waiting for one is waiting.
							_, _ = io.ReadFull(c, make([]byte, 130))
						}()
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if held := heap() - before; held > most {
						t.Errorf("%d clients make the proxy hold %d MiB, want at most %d", clients, held>>20, most>>20)
					} else {
						t.Logf("%d clients: %d MiB", clients, held>>20)
					}
					time.Sleep(2 * time.Minute) // on the clock of the bubble
					synctest.Wait()
					if left := heap() - before; left > 8<<20 {
						t.Errorf("%d MiB are left after two minutes, want none", left>>20)
					}
					crowd.leaveAll()
					stop()
				})
			})
		}
	}
}
