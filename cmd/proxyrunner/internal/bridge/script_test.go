package bridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// message is one JSON-RPC message, as a test looks at it.
type message struct {
	ID     any             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params map[string]any  `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// script is an MCP server that a test writes line by line: it answers initialize
// itself, and hands everything else to the test.
type script struct {
	t      *testing.T
	opened chan net.Conn
	conn   net.Conn
	heard  chan message
	greets chan message
	// speaks is the newest version of the protocol that it knows.
	speaks string
	// alive says that it answers a ping itself.
	alive bool
	// before is what it has read of a line before it is opened.
	before string
}

func scripted(t *testing.T) *script {
	return &script{t: t, opened: make(chan net.Conn, 1), heard: make(chan message, 1000), greets: make(chan message, 1000), speaks: "2025-06-18"}
}

// open is bridge.Options.Open.
func (s *script) open(ctx context.Context) (io.ReadWriteCloser, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	select {
	case s.opened <- theirs:
	default:
		return nil, errors.New("it is open already")
	}
	go s.serve(theirs)
	return ours, nil
}

func (s *script) serve(conn net.Conn) {
	in := bufio.NewScanner(io.MultiReader(strings.NewReader(s.before), conn))
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var m message
		if line := in.Text(); line == "" || line == s.before {
			continue // the end of a line that another proxy began
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			s.t.Errorf("the bridge wrote %q: %v", in.Text(), err)
			return
		}
		if m.Method == "ping" && s.alive {
			s.print(conn, map[string]any{"id": m.ID, "result": map[string]any{}})
			continue
		}
		if m.Method != "initialize" {
			s.heard <- m
			continue
		}
		s.greets <- m
		s.print(conn, map[string]any{"id": m.ID, "result": map[string]any{
			"protocolVersion": min(s.speaks, m.Params["protocolVersion"].(string)), "capabilities": map[string]any{}, "serverInfo": map[string]any{"name": "script", "version": "1"}}})
	}
}

// connected waits until the bridge has opened a stream.
func (s *script) connected() *script {
	s.conn = <-s.opened
	return s
}

func (s *script) print(to io.Writer, m map[string]any) {
	m["jsonrpc"] = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		s.t.Error(err)
		return
	}
	_, _ = to.Write(append(line, '\n')) // the bridge may have closed
}

// say prints a message.
func (s *script) say(m map[string]any) { s.print(s.conn, m) }

// answer is what a call comes to.
func (s *script) answer(call message, result any) {
	s.say(map[string]any{"id": call.ID, "result": result})
}

// printf prints a line as it is.
func (s *script) printf(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.conn, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

// hear returns the next message of that method, and fails if others come first.
func (s *script) hear(method string) message {
	s.t.Helper()
	for {
		select {
		case m := <-s.heard:
			if m.Method == "ping" && method != m.Method {
				continue // the bridge asks by itself, after a while: a busy machine takes that long
			}
			if m.Method != method {
				s.t.Fatalf("the server heard %+v, want %s", m, method)
			}
			return m
		case <-s.t.Context().Done():
			s.t.Fatal("the server heard nothing")
			return message{}
		}
	}
}

// begin serves a bridge in front of a script.
func begin(t *testing.T, o bridge.Options) (*script, string) {
	t.Helper()
	s, _, url := beginWith(t, o)
	return s, url
}

// beginWith returns the bridge as well.
func beginWith(t *testing.T, o bridge.Options) (*script, *bridge.Bridge, string) {
	t.Helper()
	s := scripted(t)
	o.Open = s.open
	b, url := start(t, o)
	s.connected().hear("notifications/initialized")
	return s, b, url
}

// request is an HTTP request of a client.
type request struct {
	method, path, body string
	header             map[string]string
}

func (r request) do(t *testing.T, url string) *http.Response {
	t.Helper()
	return send(t, http.DefaultClient, r.to(t, url))
}

func (r request) to(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	return req
}

func send(t *testing.T, client *http.Client, req *http.Request) *http.Response {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func post(body string, header map[string]string) request {
	return request{method: http.MethodPost, path: "/mcp", body: body, header: header}
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{},"sampling":{}},"clientInfo":{"name":"t","version":"1"}}}`

// join initialises a client, and returns the header that names its session.
func join(t *testing.T, url string) map[string]string {
	t.Helper()
	resp := post(initialize, nil).do(t, url)
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != http.StatusOK || id == "" {
		t.Fatalf("initialize: %s, session %q", resp.Status, id)
	}
	return map[string]string{"Mcp-Session-Id": id}
}

// with adds a header.
func with(h map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for n, v := range h {
		all[n] = v
	}
	return all
}

// read takes one message out of a JSON body.
func read(t *testing.T, resp *http.Response) message {
	t.Helper()
	var m message
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return m
}

// feed reads an event stream.
type feed struct {
	t  *testing.T
	in *bufio.Reader
}

func events(t *testing.T, resp *http.Response) feed {
	return feed{t: t, in: bufio.NewReader(resp.Body)}
}

// data is that of the next event; the error is that of the stream's end.
func (f feed) data() (string, error) {
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSpace(data), nil
		}
	}
}

func (f feed) next() message {
	f.t.Helper()
	data, err := f.data()
	if err != nil {
		f.t.Fatalf("the stream ended: %v", err)
	}
	var m message
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		f.t.Fatal(err)
	}
	return m
}

// later makes a request whose answer takes the test's doing.
func later(t *testing.T, url string, r request) <-chan *http.Response {
	out := make(chan *http.Response, 1)
	go func() {
		defer close(out)
		out <- r.do(t, url)
	}()
	return out
}

// inBackground is later for an answer that is one object.
func inBackground(t *testing.T, url string, r request) <-chan message {
	out := make(chan message, 1)
	go func() {
		defer close(out)
		out <- read(t, r.do(t, url))
	}()
	return out
}

// ask has a client call, and gives what the server hears of it.
func (s *script) ask(url, body string, header map[string]string) (call message, answer <-chan message) {
	s.t.Helper()
	answer = inBackground(s.t, url, post(body, header))
	return s.hear(methodOf(s.t, body)), answer
}

// askForStream is ask of a client that takes a stream as the answer.
func (s *script) askForStream(url, body string, header map[string]string) (call message, answer <-chan *http.Response) {
	s.t.Helper()
	answer = later(s.t, url, post(body, with(header, "Accept", "application/json, text/event-stream")))
	return s.hear(methodOf(s.t, body)), answer
}

func methodOf(t *testing.T, body string) string {
	t.Helper()
	var m message
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	return m.Method
}

// stream opens the stream of a session.
func stream(t *testing.T, url string, header map[string]string) feed {
	t.Helper()
	return events(t, request{method: http.MethodGet, path: "/mcp", header: with(header, "Accept", "text/event-stream")}.do(t, url))
}
