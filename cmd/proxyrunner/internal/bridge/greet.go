package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// greetTime is how long a server may take to start and to answer initialize.
const greetTime = 5 * time.Minute

// greet initialises the server, before any client can speak to it, in the newest
// version of the protocol and with all that some client may be able to do: what it
// answers is for all clients, each of which is told its own version.
func (l *link) greet(ctx context.Context) error {
	version := legacy[0]
	resp, why := l.initialize(ctx, version)
	if other := offered(resp); other != "" {
		version = other
		resp, why = l.initialize(ctx, version)
	}
	if why != nil && why.code == codeRequestTimeout {
		return l.startAgain(ctx, fmt.Errorf("it has not answered initialize for %s", greetTime))
	}
	if why != nil {
		return errors.New("initialize: " + why.message)
	}
	result := resp.Result
	if resp.Error != nil {
		if result, why = l.acquainted(ctx, resp.Error); why != nil {
			return errors.New(why.message)
		}
	} else if err := l.send(ctx, &rpcRequest{Method: "notifications/initialized"}); err != nil {
		return err
	}
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	l.bridge.greeting = result
	l.blind = resp.Error != nil && l.bridge.unanswered // it is the process of before, and may work on for clients of before
	return nil
}

func (l *link) initialize(ctx context.Context, version string) (*rpcResponse, *failure) {
	params, _ := json.Marshal(map[string]any{ // texts and maps
		"protocolVersion": version,
		"capabilities":    map[string]any{"roots": map[string]any{"listChanged": true}, "sampling": map[string]any{}, "elicitation": map[string]any{}},
		"clientInfo":      map[string]any{"name": "phasegate-proxyrunner", "version": "1"},
	})
	return l.roundTrip(ctx, "initialize", params, greetTime)
}

// offered is the version that a server wants instead of the one that it refuses;
// empty if it does not say.
func offered(resp *rpcResponse) string {
	if resp == nil {
		return ""
	}
	spoken := supported(resp.Error)
	for _, version := range legacy {
		if slices.Contains(spoken, version) {
			return version
		}
	}
	return ""
}

// welcome is the server's answer to initialize as a client is to see it: with the
// version that it asks for, if the server can speak that.
func (l *link) welcome(params json.RawMessage) (json.RawMessage, *failure) {
	l.bridge.mu.Lock()
	result, all := l.bridge.greeting, l.spoken
	l.bridge.mu.Unlock()
	var asked, spoken string
	if result == nil {
		_ = json.Unmarshal(at(params, "protocolVersion"), &asked) // it is refused all the same
		return nil, unsupported(asked, all)
	}
	_ = json.Unmarshal(at(result, "protocolVersion"), &spoken) // without one there is nothing to put in its place
	if json.Unmarshal(at(params, "protocolVersion"), &asked) != nil || !slices.Contains(legacy, asked) {
		asked = legacy[0]
	}
	result, _ = swap(result, min(asked, spoken), "protocolVersion") // they are dates
	return result, nil
}

// acquainted is for a server that refuses to be initialised. A process that
// outlived the proxy, or only the stream, may refuse because it has been: then it
// can be used, if it is known what it answered, or if it tells what it can do. One that
// speaks without sessions only always refuses: then there is no result.
func (l *link) acquainted(ctx context.Context, refusal json.RawMessage) (json.RawMessage, *failure) {
	l.bridge.mu.Lock()
	result := l.bridge.greeting
	l.bridge.mu.Unlock()
	if result != nil {
		l.bridge.o.Log.Warn("the MCP server refuses to be initialised again: it is believed to be the one of before", "error", said(refusal))
		return result, nil
	}
	resp, why := l.roundTrip(ctx, methodDiscover, ofVersion(modern), l.bridge.o.RequestTimeout)
	if why == nil {
		var spoken []string
		if _ = json.Unmarshal(at(resp.Result, "supportedVersions"), &spoken); resp.Error != nil {
			spoken = supported(resp.Error)
		}
		l.bridge.mu.Lock()
		l.spoken = spoken
		l.bridge.mu.Unlock()
		if isModern(spoken) {
			return nil, nil
		}
	}
	if why == nil && resp.Error == nil {
		if result, err := initializeResult(resp.Result); err == nil {
			l.bridge.o.Log.Info("the MCP server was initialised before this proxy: took what it says of itself")
			return result, nil
		}
	}
	return nil, &failure{status: http.StatusOK, code: codeInternalError,
		message: fmt.Sprintf("the MCP server refuses to be initialised: %s: if it was initialised by an earlier proxy, restart it", said(refusal))}
}

func said(failure json.RawMessage) string {
	var e rpcError
	_ = json.Unmarshal(failure, &e) // decode has read it before
	return e.Message
}

// initializeResult makes the answer to initialize out of that to server/discover.
func initializeResult(discovered json.RawMessage) (json.RawMessage, error) {
	var about struct {
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		Meta         struct {
			ServerInfo json.RawMessage `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(discovered, &about); err != nil {
		return nil, fmt.Errorf("read what the MCP server says of itself: %w", err)
	}
	if about.Meta.ServerInfo == nil {
		about.Meta.ServerInfo = json.RawMessage(`{"name":"unknown","version":"unknown"}`)
	}
	result := map[string]any{"protocolVersion": legacy[0], "capabilities": about.Capabilities, "serverInfo": about.Meta.ServerInfo}
	if about.Instructions != "" {
		result["instructions"] = about.Instructions
	}
	return json.Marshal(result)
}

// roundTrip is a call of the bridge itself, which the server may take that long for.
func (l *link) roundTrip(ctx context.Context, method string, params json.RawMessage, within time.Duration) (*rpcResponse, *failure) {
	c := &call{bridge: l.bridge, session: l.bridge.newSession(""), own: true, id: number(0), box: newMailbox(), within: within}
	from, _ := l.bridge.mail.attend(c.box, true, func() {}) // nobody else knows it
	l.forward(ctx, c, &rpcRequest{ID: c.id, Method: method, Params: params})
	select { // there is always an answer: a timeout at the latest
	case <-c.box.ready:
	case <-from.cut:
	}
	i, ok := l.bridge.mail.take(c.box, from)
	l.bridge.mail.discard(c.box)
	if !ok {
		return nil, unavailable("too much waits for clients")
	}
	if i.why != nil {
		return nil, i.why
	}
	m, err := decode(i.data)
	resp, isResponse := m.(*rpcResponse)
	if err != nil || !isResponse {
		return nil, unavailable("the MCP server's answer cannot be read")
	}
	return resp, nil
}

// setLevel is the method by which a client says which logs it wants.
const setLevel = "logging/setLevel"

// restore tells a server that has just been initialised what clients have asked the one
// before for: they do not learn that it was replaced. What has changed meanwhile was told
// to nobody, so those who are subscribed are told to read again. A server that is the one
// of before is told twice, which changes nothing.
func (l *link) restore(ctx context.Context) {
	level, uris := l.bridge.asked()
	if level != "" && !l.again(ctx, setLevel, map[string]any{"level": level}) {
		return
	}
	for _, uri := range uris {
		about := map[string]any{"uri": uri}
		if !l.again(ctx, methodSubscribe, about) {
			return
		}
		params, _ := json.Marshal(about) // a text
		l.bridge.mu.Lock()
		l.announceLocked(&rpcRequest{Method: "notifications/resources/updated", Params: params})
		l.bridge.mu.Unlock()
	}
}

// asked are the level of logs, empty if nobody has chosen one, and the resources to which
// some client is subscribed.
func (b *Bridge) asked() (level string, uris []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]struct{}{}
	for _, s := range b.sessions {
		maps.Copy(all, s.subscriptions)
	}
	return b.level, slices.Sorted(maps.Keys(all))
}

// again is false if the server is gone.
func (l *link) again(ctx context.Context, method string, about map[string]any) bool {
	params, _ := json.Marshal(about) // a text
	resp, why := l.roundTrip(ctx, method, params, l.bridge.o.RequestTimeout)
	switch {
	case why != nil:
		l.bridge.o.Log.Warn("the new MCP server was not told what clients had asked for", "method", method, "error", why.message)
	case resp.Error != nil:
		l.bridge.o.Log.Warn("the new MCP server refuses what clients had asked for", "method", method, "error", said(resp.Error))
	}
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	return !l.over
}
