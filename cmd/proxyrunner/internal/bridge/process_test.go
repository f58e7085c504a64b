package bridge_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// start serves a bridge in front of a container, and waits until it is attached.
func start(t *testing.T, o bridge.Options) (*bridge.Bridge, string) {
	t.Helper()
	b := bridge.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		cancel()
		run.Wait() // ends all streams, so that the server can end
		server.Close()
	})
	healthy(t, b)
	return b, server.URL
}

func healthy(t *testing.T, b *bridge.Bridge) {
	t.Helper()
	harness.Eventually(t, "the bridge to be attached", func() error {
		if ok, message := b.Health(); !ok {
			return fmt.Errorf("%s", message)
		}
		return nil
	})
}

func transport(mode, url string) mcp.Transport {
	if mode == bridge.ModeSSE {
		return &mcp.SSEClientTransport{Endpoint: url + "/sse"}
	}
	return &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}
}

func connect(t *testing.T, mode, url string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), transport(mode, url), nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// echo calls the tool of that name, and checks that the answer is ours.
func echo(ctx context.Context, session *mcp.ClientSession, text string) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if got := result.Content[0].(*mcp.TextContent).Text; got != text {
		return fmt.Errorf("echo of %q answered %q", text, got)
	}
	return nil
}

var modes = []string{bridge.ModeStreamableHTTP, bridge.ModeSSE}

func TestClientsOfAProcess(t *testing.T) {
	path := container.Echo(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			_, url := start(t, bridge.Options{Open: container.Run(t, path).Open, Mode: mode})
			session := connect(t, mode, url)
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(tools.Tools) != 2 {
				t.Errorf("%d tools, want echo and add", len(tools.Tools))
			}
			if name := session.InitializeResult().ServerInfo.Name; name != "echo" {
				t.Errorf("server %q, want echo", name)
			}
			long := strings.Repeat("x", 1<<20)
			if err := echo(t.Context(), session, long); err != nil {
				t.Errorf("a text of 1 MiB: %v", err)
			}
			if err := echo(t.Context(), connect(t, mode, url), "second"); err != nil {
				t.Errorf("a second client: %v", err)
			}
		})
	}
}

func TestManySessionsAtOnce(t *testing.T) {
	path := container.Echo(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			_, url := start(t, bridge.Options{Open: container.Run(t, path).Open, Mode: mode})
			const sessions, calls = 200, 2
			var all sync.WaitGroup
			for i := range sessions {
				all.Go(func() {
					client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
					session, err := client.Connect(t.Context(), transport(mode, url), nil)
					if err != nil {
						t.Errorf("session %d: %v", i, err)
						return
					}
					for n := range calls {
						if err := echo(t.Context(), session, fmt.Sprintf("%d-%d", i, n)); err != nil {
							t.Errorf("session %d, call %d: %v", i, n, err)
						}
					}
					if err := session.Close(); err != nil {
						t.Errorf("session %d: close: %v", i, err)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestKilledProcess(t *testing.T) {
	path := container.Echo(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			c := container.Run(t, path)
			b, url := start(t, bridge.Options{Open: c.Open, Mode: mode})
			session := connect(t, mode, url)
			if err := echo(t.Context(), session, "before"); err != nil {
				t.Fatal(err)
			}
			c.Kill()
			harness.Eventually(t, "the bridge to notice", func() error {
				if ok, _ := b.Health(); ok && c.Starts() == 1 {
					return fmt.Errorf("still attached")
				}
				return nil
			})
			// The same session goes on: the bridge has initialised the new process itself.
			healthy(t, b)
			harness.Eventually(t, "a call of the same session", func() error {
				return echo(t.Context(), session, "after")
			})
			if c.Starts() != 2 {
				t.Errorf("%d processes, want 2", c.Starts())
			}
		})
	}
}

func TestProcessThatOutlivesTheProxy(t *testing.T) {
	c := container.Run(t, container.Echo(t))
	first, end := context.WithCancel(t.Context())
	b := bridge.New(bridge.Options{Open: c.Open})
	var run sync.WaitGroup
	run.Go(func() { _ = b.Run(first) })
	server := httptest.NewServer(b)
	defer server.Close()
	healthy(t, b)
	if err := echo(t.Context(), connect(t, bridge.ModeStreamableHTTP, server.URL), "first proxy"); err != nil {
		t.Fatal(err)
	}
	end()
	run.Wait()

	// The SDK's server refuses to be initialised twice, and is the one of before.
	_, url := start(t, bridge.Options{Open: c.Open})
	session := connect(t, bridge.ModeStreamableHTTP, url)
	if err := echo(t.Context(), session, "second proxy"); err != nil {
		t.Error(err)
	}
	if info := session.InitializeResult(); info.ServerInfo.Name != "echo" || info.Capabilities.Tools == nil {
		t.Errorf("the server is introduced as %+v with %+v", info.ServerInfo, info.Capabilities)
	}
	if c.Starts() != 1 {
		t.Errorf("%d processes, want 1", c.Starts())
	}
}
