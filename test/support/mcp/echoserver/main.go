// Command echoserver is an MCP server to test proxies with: a process of its own,
// that can be killed, with the transports that an MCPServer can have. It has the
// tools echo, which answers its text, and add, which adds two numbers.
//
// It knows no Kubernetes and nothing of the proxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	transport := flag.String("transport", "stdio", "stdio, streamable-http (path /mcp) or sse (path /sse)")
	listen := flag.String("listen", "127.0.0.1:0", "where an HTTP transport listens; the first line of output names it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *transport, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "echoserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, transport, listen string) error {
	server := newServer()
	every := func(*http.Request) *mcp.Server { return server }
	mux := http.NewServeMux()
	switch transport {
	case "stdio":
		return server.Run(ctx, &mcp.StdioTransport{})
	case "streamable-http":
		// In a cluster it is asked for by the names of Services.
		mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(every, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}))
	case "sse":
		mux.Handle("/sse", mcp.NewSSEHandler(every, nil))
	default:
		return fmt.Errorf("-transport=%s: want stdio, streamable-http or sse", transport)
	}
	return serve(ctx, listen, mux)
}

// serve does not wait for streams that are open when it is told to end.
func serve(ctx context.Context, listen string, handler http.Handler) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type echoArgs struct {
	Text string `json:"text" jsonschema:"what to answer"`
}

type addArgs struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Answers the text that it is given."},
		func(_ context.Context, _ *mcp.CallToolRequest, args echoArgs) (*mcp.CallToolResult, any, error) {
			return text(args.Text), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers."},
		func(_ context.Context, _ *mcp.CallToolRequest, args addArgs) (*mcp.CallToolResult, any, error) {
			return text(fmt.Sprint(args.A + args.B)), nil, nil
		})
	return server
}

func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}
