package bridge_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/harness"
)

// BenchmarkCall makes calls without a network: of a bridge with a server behind it, and of the SDK's handler, which answers
// itself what it would have to pass on.
func BenchmarkCall(b *testing.B) {
	for _, kind := range []struct {
		name    string
		handler func(*testing.B) http.Handler
	}{
		{"bridge", bridged},
		{"SDK", func(*testing.B) http.Handler { return handlerOfSDK(nil) }},
		{"SDK with events", func(*testing.B) http.Handler { return handlerOfSDK(mcp.NewMemoryEventStore(nil)) }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			handler := kind.handler(b)
			call := func(session, body string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, ofHTTP(b.Context(), http.MethodPost, body, "Accept", "application/json, text/event-stream",
					"Mcp-Protocol-Version", "2025-06-18", "Mcp-Session-Id", session))
				return w
			}
			var id atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				session := call("", initialize).Header().Get("Mcp-Session-Id")
				call(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				for pb.Next() {
					w := call(session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`, id.Add(1)))
					if !strings.Contains(w.Body.String(), `"hello"`) {
						b.Errorf("answered %d %s", w.Code, w.Body)
					}
				}
			})
		})
	}
}

// bridged is a bridge in front of a server that answers hello.
func bridged(b *testing.B) http.Handler {
	handler := bridge.New(bridge.Options{Open: saying(func(m message) string {
		if m.Method == "initialize" {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`, m.ID)
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%.0f,"result":{"content":[{"type":"text","text":"hello"}]}}`, m.ID)
	})})
	go func() { _ = handler.Run(b.Context()) }() // it never fails
	harness.Eventually(b, "the bridge to be attached", func() error {
		if ok, message := handler.Health(); !ok {
			return fmt.Errorf("%s", message)
		}
		return nil
	})
	return handler
}

func handlerOfSDK(store mcp.EventStore) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method != "tools/call" {
				return next(ctx, method, r)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{EventStore: store})
}
