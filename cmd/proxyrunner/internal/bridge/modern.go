package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// From version 2026-07-28 on the protocol has no sessions: each request says in _meta which
// version it is of and what its client can do. A server that speaks it gets such requests as
// they are. Of the server's own accord nothing comes but on the stream of a listen call.
const (
	modern           = "2026-07-28"
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	methodDiscover   = "server/discover"
	methodListen     = "subscriptions/listen"
	// noVersion is one that no server has: one that speaks without sessions refuses it, and
	// says which it has. To ask for what it says of itself would end, in some servers, what
	// initialize has begun.
	noVersion = "9999-12-31"
	// probeTime is how long a server may take to say that.
	probeTime = 10 * time.Second
)

// removed are the methods that requests of that kind must not have: they would change what
// the server keeps for clients with sessions.
var removed = []string{"initialize", "ping", setLevel, methodSubscribe, methodUnsubscribe}

// version is the protocol version that a request names for itself, as those without sessions
// do; empty for others.
func version(req *rpcRequest) string {
	var v string
	if json.Unmarshal(at(req.Params, "_meta", metaVersion), &v) != nil {
		return ""
	}
	return v
}

// checkVersion says what is wrong with the version that a message is of, and with the
// headers that a request of a modern one must have: they say what its body says.
func checkVersion(h http.Header, m rpcMessage) *failure {
	header, body := versions(h), ""
	req, isRequest := m.(*rpcRequest)
	isCall := isRequest && req.IsCall()
	if isCall {
		body = version(req)
	}
	switch {
	case body == "" && (header == "" || slices.Contains(legacy, header)):
		return nil
	case body == "" && header < modern:
		return unsupported(header, legacy)
	case !isCall:
		return nil
	case body == "":
		return &failure{status: http.StatusBadRequest, code: codeInvalidParams, message: "_meta has no " + metaVersion}
	case at(req.Params, "_meta", metaCapabilities) == nil:
		return &failure{status: http.StatusBadRequest, code: codeInvalidParams, message: "_meta has no " + metaCapabilities}
	}
	if name, want, got := mismatch(h, header, body, req); name != "" {
		return &failure{status: http.StatusBadRequest, code: codeHeaderMismatch, message: fmt.Sprintf("the header %s is %q, and the body says %q: send both alike", name, got, want)}
	}
	return nil
}

// mismatch is the header that does not say what the body says; an empty name if all do.
func mismatch(h http.Header, header, body string, req *rpcRequest) (name, want, got string) {
	if header != body {
		return "MCP-Protocol-Version", body, header
	}
	if got := h.Get("Mcp-Method"); got != req.Method {
		return "Mcp-Method", req.Method, got
	}
	field := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[req.Method]
	if field != "" && json.Unmarshal(at(req.Params, field), &want) == nil {
		if got := plain(h.Get("Mcp-Name")); got != want {
			return "Mcp-Name", want, got
		}
	}
	return "", "", ""
}

// plain is the value of a header that may be encoded.
func plain(value string) string {
	text, isEncoded := strings.CutPrefix(value, "=?base64?")
	if text, isWhole := strings.CutSuffix(text, "?="); isEncoded && isWhole {
		if data, err := base64.StdEncoding.DecodeString(text); err == nil {
			return string(data)
		}
	}
	return value
}

// askModern is ask for a request of version v.
func (l *link) askModern(ctx context.Context, c *call, req *rpcRequest, v string) {
	c.modern = true
	if l.bridge.o.Mode == ModeSSE {
		c.fail(unsupported(v, legacy))
		return
	}
	spoken := l.spokenVersions(ctx)
	switch {
	case !slices.Contains(spoken, v):
		c.fail(unsupported(v, spoken))
		return
	case slices.Contains(removed, req.Method):
		c.fail(&failure{status: http.StatusNotFound, code: codeMethodNotFound, message: req.Method + " is not part of version " + v})
		return
	case req.Method == methodDiscover:
		if result := l.bridge.discovered(spoken); result != nil {
			c.reply(&rpcResponse{Result: result}, nil)
			return
		}
	case req.Method == methodListen:
		if l.bridge.isDraining() {
			c.fail(unavailable(ending))
			return
		}
		c.listens, c.within = &interests{}, math.MaxInt64 // as long as the client wants
		_ = json.Unmarshal(at(req.Params, "notifications"), c.listens)
	}
	l.forward(ctx, c, req)
}

// spokenVersions are all versions that the server, and the bridge in front of it, can speak. A server
// is asked once, when the first request comes that needs to know.
func (l *link) spokenVersions(ctx context.Context) []string {
	l.bridge.mu.Lock()
	spoken := l.spoken
	l.bridge.mu.Unlock()
	if spoken != nil {
		return spoken
	}
	resp, why := l.roundTrip(ctx, methodDiscover, ofVersion(noVersion), probeTime)
	if why != nil {
		return legacy // it is asked again
	}
	if spoken = supported(resp.Error); len(spoken) == 0 {
		spoken = legacy
	}
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	l.spoken = spoken
	return spoken
}

// ofVersion are the parameters of a request that the bridge itself makes.
func ofVersion(v string) json.RawMessage {
	params, _ := json.Marshal(map[string]any{"_meta": map[string]any{ // texts and maps
		metaVersion:      v,
		metaCapabilities: map[string]any{},
		metaClient:       map[string]any{"name": "phasegate-proxyrunner", "version": "1"},
	}})
	return params
}

func supported(refusal json.RawMessage) []string {
	var e struct{ Data struct{ Supported []string } }
	if json.Unmarshal(refusal, &e) != nil {
		return nil
	}
	return e.Data.Supported
}

// isModern tells whether there is no version with sessions among those.
func isModern(versions []string) bool {
	return len(versions) > 0 && !slices.ContainsFunc(versions, func(v string) bool { return v < modern })
}

// discovered is what a server says of itself, made of its answer to initialize; nil if it
// gave none.
func (b *Bridge) discovered(spoken []string) json.RawMessage {
	b.mu.Lock()
	greeting := b.greeting
	b.mu.Unlock()
	if greeting == nil {
		return nil
	}
	about := map[string]any{"resultType": "complete", "supportedVersions": spoken, "ttlMs": 0, "cacheScope": "private"}
	for _, name := range []string{"capabilities", "instructions"} {
		if value := at(greeting, name); value != nil {
			about[name] = value
		}
	}
	if info := at(greeting, "serverInfo"); info != nil {
		about["_meta"] = map[string]any{metaServer: info}
	}
	result, _ := json.Marshal(about) // texts, and JSON that was read
	return result
}

// refused is the status of an answer of the server that says no; nil if it is as usual.
func refused(answer json.RawMessage) *failure {
	var e rpcError
	if answer == nil || json.Unmarshal(answer, &e) != nil {
		return nil
	}
	switch e.Code {
	case codeMethodNotFound:
		return &failure{status: http.StatusNotFound}
	case codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion:
		return &failure{status: http.StatusBadRequest}
	}
	return nil
}

// completed is a result with its type, which is required without sessions. A server that was initialized may
// leave it out (the Go SDK does, as for clients with sessions): then it is that of a result that needs no input.
func completed(result json.RawMessage) json.RawMessage {
	inner, isObject := bytes.CutPrefix(bytes.TrimLeft(result, " \t\r\n"), []byte("{"))
	if !isObject || at(result, "resultType") != nil {
		return result
	}
	begin := `{"resultType":"complete",`
	if bytes.HasPrefix(bytes.TrimLeft(inner, " \t\r\n"), []byte("}")) {
		begin = strings.TrimSuffix(begin, ",")
	}
	return append([]byte(begin), inner...)
}

// interests are what a listen call wants to be told.
type interests struct {
	Tools     bool     `json:"toolsListChanged"`
	Prompts   bool     `json:"promptsListChanged"`
	Resources bool     `json:"resourcesListChanged"`
	URIs      []string `json:"resourceSubscriptions"`
}

func (i *interests) want(m *rpcRequest) bool {
	switch m.Method {
	case "notifications/tools/list_changed":
		return i.Tools
	case "notifications/prompts/list_changed":
		return i.Prompts
	case "notifications/resources/list_changed":
		return i.Resources
	case "notifications/resources/updated":
		var uri string
		return json.Unmarshal(at(m.Params, "uri"), &uri) == nil && slices.Contains(i.URIs, uri)
	}
	return false
}

// listenedLocked hands a notification to the listen call that the server names in it, and one
// that names none to all that want it: a server that was initialised need not name them. done
// says that it concerns nobody else.
func (l *link) listenedLocked(m *rpcRequest) (done bool) {
	tag := at(m.Params, "_meta", metaSubscription)
	if tag != nil {
		n, _ := rpcID(tag).int()
		if c := l.calls[n]; c != nil && c.listens != nil {
			c.pushTaggedLocked(m)
		}
		return true
	}
	for _, c := range l.calls {
		if c.listens != nil && c.listens.want(m) {
			c.pushTaggedLocked(m)
		}
	}
	return false
}

// pushTaggedLocked names a listen call as its client knows it.
func (c *call) pushTaggedLocked(m *rpcRequest) {
	var params, meta map[string]json.RawMessage
	if json.Unmarshal(m.Params, &params) != nil || params == nil {
		params = map[string]json.RawMessage{}
	}
	if json.Unmarshal(params["_meta"], &meta) != nil || meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[metaSubscription] = json.RawMessage(c.id)
	params["_meta"], _ = json.Marshal(meta) // JSON that was read, as below
	tagged, _ := json.Marshal(params)
	c.bridge.mail.pushMessageLocked(c.box, &rpcRequest{Method: m.Method, Params: tagged})
}

// endListensLocked ends the listen calls as a server does that ends.
func (l *link) endListensLocked() {
	for _, c := range l.calls {
		if c.listens == nil {
			continue
		}
		result, _ := json.Marshal(map[string]any{"resultType": "complete", "_meta": map[string]any{metaSubscription: json.RawMessage(c.id)}})
		if c.finishLocked(&rpcResponse{Result: result}, nil) {
			c.cancelLocked("the proxy is ending")
		}
	}
}
