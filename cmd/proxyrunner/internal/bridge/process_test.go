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

// Clients of one process, then many more at once; and the session of before goes on with the process that follows.
func TestClientsOfAProcess(t *testing.T) {
	path := container.Echo(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			c := container.Run(t, path)
			b, url := start(t, bridge.Options{Open: c.Open, Mode: mode})
			session := connect(t, mode, url)
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if name := session.InitializeResult().ServerInfo.Name; len(tools.Tools) != 2 || name != "echo" {
				t.Errorf("server %q with %d tools, want echo with echo and add", name, len(tools.Tools))
			}
			if err := echo(t.Context(), session, strings.Repeat("x", 1<<20)); err != nil {
				t.Errorf("a text of 1 MiB: %v", err)
			}
			manyAtOnce(t, mode, url)
			c.Kill()
			harness.Eventually(t, "the bridge to notice", func() error {
				if ok, _ := b.Health(); ok && c.Starts() == 1 {
					return fmt.Errorf("still attached")
				}
				return nil
			})
			healthy(t, b) // it has initialised the new process itself
			harness.Eventually(t, "a call of the same session", func() error { return echo(t.Context(), session, "after") })
			if c.Starts() != 2 {
				t.Errorf("%d processes, want 2", c.Starts())
			}
		})
	}
}

// manyAtOnce has sessions whose calls have the same ids call at the same time.
func manyAtOnce(t *testing.T, mode, url string) {
	const sessions, calls = 200, 2
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport(mode, url), nil)
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
}

func TestProcessThatOutlivesTheProxy(t *testing.T) {
	c := container.Run(t, container.Echo(t))
	t.Run("first proxy", func(t *testing.T) { // which ends with this
		_, url := start(t, bridge.Options{Open: c.Open})
		if err := echo(t.Context(), connect(t, bridge.ModeStreamableHTTP, url), "first proxy"); err != nil {
			t.Fatal(err)
		}
	})

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
