package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// greeting is what a client said when it initialised the server, and what the
// server answered: for later clients, and for the server's next life.
type greeting struct{ params, result json.RawMessage }

// hello is the initialisation of one link. What it holds is there once done is closed.
type hello struct {
	done   chan struct{}
	result json.RawMessage
	why    *failure
}

// greet returns the server's answer to initialize. The first who needs it on a
// link makes the server give it; nil params stand for a client without wishes.
func (b *Bridge) greet(ctx context.Context, l *link, params json.RawMessage) (json.RawMessage, *failure) {
	b.mu.Lock()
	h := l.hello
	if first := h == nil; first {
		h = &hello{done: make(chan struct{})}
		l.hello = h
		b.mu.Unlock()
		// Others wait for the outcome, whatever becomes of the client that is first.
		b.initialize(context.WithoutCancel(ctx), l, h, params)
	} else {
		b.mu.Unlock()
	}
	select {
	case <-h.done:
		return h.result, h.why
	case <-ctx.Done():
		return nil, unavailable(ctx.Err().Error())
	}
}

// greetAgain initialises a server that was initialised in an earlier life, before
// any client can speak to it.
func (b *Bridge) greetAgain(ctx context.Context, l *link) error {
	b.mu.Lock()
	params := b.greeting.params
	b.mu.Unlock()
	if params == nil {
		return nil
	}
	if _, why := b.greet(ctx, l, params); why != nil {
		return errors.New("initialize: " + why.message)
	}
	return nil
}

// initialize fills in h.
func (b *Bridge) initialize(ctx context.Context, l *link, h *hello, params json.RawMessage) {
	defer close(h.done)
	if params == nil {
		params, _ = json.Marshal(map[string]any{ // texts and maps
			"protocolVersion": legacy[0], "capabilities": map[string]any{},
			"clientInfo": map[string]any{"name": "phasegate-proxyrunner", "version": "1"},
		})
	}
	resp, why := b.roundTrip(ctx, l, "initialize", params)
	switch {
	case why != nil:
		h.why = why
	case resp.Error == nil:
		h.result = resp.Result
		if err := b.send(ctx, l, &jsonrpc.Request{Method: "notifications/initialized"}); err != nil {
			h.why = unavailable(err.Error())
		}
	default:
		h.result, h.why = b.acquainted(ctx, l, params, resp.Error)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.why != nil {
		l.hello = nil // the next one tries again
		return
	}
	b.greeting = greeting{params: params, result: h.result}
}

// acquainted is for a server that refuses to be initialised. A process that
// outlived the proxy, or only the stream, may refuse because it has been: then it
// can be used, if it is known what it answered, or if it tells what it can do.
func (b *Bridge) acquainted(ctx context.Context, l *link, params json.RawMessage, refusal error) (json.RawMessage, *failure) {
	b.mu.Lock()
	result := b.greeting.result
	b.mu.Unlock()
	if result != nil {
		b.o.Log.Warn("the MCP server refuses to be initialised again: it is believed to be the one of before", "error", refusal)
		return result, nil
	}
	const sessionless = "2026-07-28"
	about, _ := json.Marshal(map[string]any{"_meta": map[string]any{ // texts and maps
		"io.modelcontextprotocol/protocolVersion":    sessionless,
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "phasegate-proxyrunner", "version": "1"},
	}})
	resp, why := b.roundTrip(ctx, l, "server/discover", about)
	if why == nil && resp.Error == nil {
		if result, err := initializeResult(params, resp.Result); err == nil {
			b.o.Log.Info("the MCP server was initialised before this proxy: took what it says of itself")
			return result, nil
		}
	}
	return nil, &failure{status: http.StatusOK, code: jsonrpc.CodeInternalError,
		message: fmt.Sprintf("the MCP server refuses to be initialised: %v: if it was initialised by an earlier proxy, restart it", refusal)}
}

// initializeResult makes the answer to initialize out of that to server/discover.
func initializeResult(params, discovered json.RawMessage) (json.RawMessage, error) {
	var said struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	var about struct {
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		Meta         struct {
			ServerInfo json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := errors.Join(json.Unmarshal(params, &said), json.Unmarshal(discovered, &about)); err != nil {
		return nil, fmt.Errorf("read what the MCP server says of itself: %w", err)
	}
	version := legacy[0]
	for _, v := range legacy {
		if v == said.ProtocolVersion {
			version = v
		}
	}
	if about.Meta.ServerInfo == nil {
		about.Meta.ServerInfo = json.RawMessage(`{"name":"unknown","version":"unknown"}`)
	}
	result := map[string]any{"protocolVersion": version, "capabilities": about.Capabilities, "serverInfo": about.Meta.ServerInfo}
	if about.Instructions != "" {
		result["instructions"] = about.Instructions
	}
	return json.Marshal(result)
}

// roundTrip is a call of the bridge itself.
func (b *Bridge) roundTrip(ctx context.Context, l *link, method string, params json.RawMessage) (*jsonrpc.Response, *failure) {
	s := newSession()
	c := &call{session: s, id: number(0), box: newMailbox()}
	from, _ := b.attend(c.box, true, func() {}) // nobody else knows it
	b.forward(ctx, l, c, &jsonrpc.Request{ID: c.id, Method: method, Params: params})
	select { // there is always an answer: a timeout at the latest
	case <-c.box.ready:
	case <-from.cut:
	}
	i, ok := b.take(c.box)
	b.discard(c.box)
	if !ok {
		return nil, unavailable("too much waits for clients")
	}
	if i.why != nil {
		return nil, i.why
	}
	m, err := decode(i.data)
	resp, isResponse := m.(*jsonrpc.Response)
	if err != nil || !isResponse {
		return nil, unavailable("the MCP server's answer cannot be read")
	}
	return resp, nil
}
