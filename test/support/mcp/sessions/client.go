package sessions

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Open is a session of a client with a token; an empty one is not sent. mode is how clients speak to the proxy.
func Open(ctx context.Context, address, mode, token string) (*mcp.ClientSession, error) {
	hc := &http.Client{Transport: bearer(token)}
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: address + "/mcp", HTTPClient: hc, MaxRetries: -1}
	if mode == v1beta1.TransportSSE {
		transport = &mcp.SSEClientTransport{Endpoint: address + "/sse", HTTPClient: hc}
	}
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, transport, nil)
}

// bearer sends a token with each request; empty sends none.
type bearer string

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Tools are the names of those that a client sees, sorted.
func Tools(ctx context.Context, session *mcp.ClientSession) ([]string, error) {
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names, nil
}

// Call is the text that a tool answers.
func Call(ctx context.Context, session *mcp.ClientSession, tool string, args map[string]any) (string, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", err
	}
	if len(result.Content) != 1 {
		return "", fmt.Errorf("%d contents", len(result.Content))
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok || result.IsError {
		return "", fmt.Errorf("answered %+v", result.Content[0])
	}
	return text.Text, nil
}
