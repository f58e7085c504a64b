package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

const (
	// SSEPath is where a server of sse opens streams.
	SSEPath = "/sse"
	// maxEvent is the longest line of an event of a Stream, in bytes.
	maxEvent = 10 << 20
	// endpointTime is how long the server may take to open a Stream.
	endpointTime = 10 * time.Second
)

// StatusError is an answer of the server other than what was asked for.
type StatusError struct {
	Code   int
	Header http.Header
}

// Error is that of error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the MCP server answered GET %s with status %d", SSEPath, e.Code)
}

// Stream is a session of sse with the server as lines of text: what is read and written is one
// message a line, as a server of stdio has them. The messages of one Stream are sent one after the
// other. A request that the server does not take is answered with an error.
type Stream struct {
	*io.PipeReader // messages of the server
	to             *io.PipeWriter
	end            func()
	post           func(message []byte) (*http.Response, error)
}

// Open opens one with the headers of a client's request. It ends with ctx, not with the request.
func (p *Relay) Open(ctx context.Context, client *http.Request) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(nil) }
	client = client.WithContext(ctx) // a copy, which is kept for as long as the stream: without what the client has sent
	client.Body, client.GetBody = http.NoBody, nil
	slow := time.AfterFunc(endpointTime, func() { cancel(fmt.Errorf("the MCP server has not said within %s where messages go", endpointTime)) })
	defer slow.Stop()
	answer, err := p.send(ctx, client, http.MethodGet, SSEPath, nil)
	if err != nil {
		defer end()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.StatusCode != http.StatusOK || media != "text/event-stream" {
		end()
		_ = answer.Body.Close() // nothing was written
		return nil, &StatusError{Code: answer.StatusCode, Header: answer.Header}
	}
	in := bufio.NewScanner(answer.Body)
	in.Buffer(nil, maxEvent)
	in.Split((&eventLines{}).split)
	endpoint, err := p.endpointOf(in)
	if err != nil {
		defer end()
		_ = answer.Body.Close() // nothing was written
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	at := context.WithValue(ctx, placeID{}, place{index: placeOf(answer.Request.Context()).index, bound: true})
	s := &Stream{end: end, post: func(message []byte) (*http.Response, error) {
		return p.send(at, client, http.MethodPost, endpoint, message)
	}}
	s.PipeReader, s.to = io.Pipe()
	go func() {
		defer answer.Body.Close()
		for event, data := nextEvent(in); data != nil; event, data = nextEvent(in) {
			if event == "" || event == "message" {
				_ = s.say(data) // if nobody reads, the body ends, too
			}
		}
		_ = s.to.CloseWithError(io.EOF) // it never fails
	}()
	return s, nil
}

// endpointOf reads the first event, and answers the path to which messages go.
func (p *Relay) endpointOf(in *bufio.Scanner) (string, error) {
	event, data := nextEvent(in)
	if data == nil {
		return "", fmt.Errorf("the MCP server ended the stream of %s at once", SSEPath)
	}
	at, err := p.target.JoinPath(SSEPath).Parse(correct(string(data), p.target.Host, ""))
	if event != "endpoint" || err != nil || at.Host != p.target.Host {
		return "", fmt.Errorf("the MCP server says %s %.200q instead of its own address to which messages go", event, data)
	}
	return at.RequestURI(), nil
}

// send sends the server a request of its own with the headers of a client's.
func (p *Relay) send(ctx context.Context, client *http.Request, method, path string, body []byte) (*http.Response, error) {
	target, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	out := client.Clone(ctx)
	out.Method, out.URL, out.RequestURI, out.Close = method, target, "", false
	out.ContentLength, out.TransferEncoding, out.Body, out.GetBody = int64(len(body)), nil, http.NoBody, nil
	for _, name := range []string{sessionHeader, "Last-Event-Id", "Content-Length", "Accept-Encoding", "Connection", "Keep-Alive", "Te", "Upgrade", "Proxy-Authorization"} {
		out.Header.Del(name)
	}
	if method == http.MethodGet {
		out.Header.Set("Accept", "text/event-stream")
		out.Header.Del("Content-Type")
	} else {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody() // it never fails
	}
	p.proxy.Rewrite(&httputil.ProxyRequest{In: client, Out: out})
	return p.proxy.Transport.RoundTrip(out)
}

// Write sends one message.
func (s *Stream) Write(line []byte) (int, error) {
	message := bytes.TrimSpace(line)
	if len(message) == 0 {
		return len(line), nil
	}
	answer, err := s.post(bytes.Clone(message)) // a connection may read it for longer
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // what there is
	var call struct{ Method *string }
	if id := rpcerror.ID(message); answer.StatusCode >= http.StatusMultipleChoices && string(id) != "null" && json.Unmarshal(message, &call) == nil && call.Method != nil {
		why, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": rpcerror.Code, // texts, and JSON
			"message": fmt.Sprintf("the MCP server answered status %d: %s", answer.StatusCode, bytes.TrimSpace(text))}})
		err = s.say(why)
	}
	return len(line), err
}

// say is for the reader. An event may have its data on several lines.
func (s *Stream) say(message []byte) error {
	_, err := s.to.Write(append(bytes.ReplaceAll(message, []byte("\n"), []byte(" ")), '\n'))
	return err
}

// Close ends the session.
func (s *Stream) Close() error {
	s.end()
	return errors.Join(s.PipeReader.Close(), s.to.Close())
}

// nextEvent reads one; without data the stream has ended.
func nextEvent(in *bufio.Scanner) (event string, data []byte) {
	for in.Scan() {
		switch name, value := field(in.Bytes()); {
		case name == "" && data != nil:
			return event, data
		case name == "":
			event = ""
		case name == "event":
			event = value
		case name == "data" && data != nil:
			data = append(append(data, '\n'), value...)
		case name == "data":
			data = []byte(value)
		}
	}
	return "", nil
}
