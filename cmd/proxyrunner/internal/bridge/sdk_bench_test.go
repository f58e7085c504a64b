package bridge

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

// BenchmarkCodec reads an answer and writes it again, as the bridge does and as the SDK does.
func BenchmarkCodec(b *testing.B) {
	codecs := map[string]func([]byte) ([]byte, error){
		"bridge": func(line []byte) ([]byte, error) {
			m, err := decode(line)
			if err != nil {
				return nil, err
			}
			return encodeMessage(m)
		},
		"SDK": func(line []byte) ([]byte, error) {
			m, err := jsonrpc.DecodeMessage(line)
			if err != nil {
				return nil, err
			}
			return jsonrpc.EncodeMessage(m)
		},
	}
	for _, size := range []int{100, 10 << 10, 8 << 20} {
		line := []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}}`)
		for _, name := range []string{"bridge", "SDK"} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := codecs[name](line); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkIdleSession opens sessions that do nothing, and reports what each one holds: those of the bridge, and connected
// transports of the SDK with the goroutine that reads each.
func BenchmarkIdleSession(b *testing.B) {
	params := json.RawMessage(`{"capabilities":{"roots":{},"sampling":{}}}`)
	server := New(Options{State: limit.NewShares(1 << 40)})
	store := mcp.NewMemoryEventStore(nil)
	for _, kind := range []struct {
		name string
		open func(n int) (any, error)
	}{
		{"bridge", func(int) (any, error) {
			s, why := server.open("client")
			if why != nil {
				return nil, fmt.Errorf("%s", why.message)
			}
			s.introduce(params)
			return s, nil
		}},
		{"SDK", func(n int) (any, error) {
			transport := &mcp.StreamableServerTransport{SessionID: fmt.Sprintf("%026d", n), EventStore: store}
			conn, err := transport.Connect(b.Context())
			if err != nil {
				return nil, err
			}
			go func() { _, _ = conn.Read(b.Context()) }() // until the end
			return transport, nil
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			before, open := held(), []any{}
			for b.Loop() {
				s, err := kind.open(len(open))
				if err != nil {
					b.Fatal(err)
				}
				open = append(open, s)
			}
			b.ReportMetric(float64(held()-before)/float64(len(open)), "B/session")
			runtime.KeepAlive(open)
		})
	}
}

// held is what the heap and stacks take.
func held() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
