package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/relay"
)

// sseBackend has sessions a, b and so on. What is sent to one of its channels is said on
// the stream of that session.
type sseBackend map[string]chan string

func (s sseBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := r.URL.Query().Get("s")
	switch {
	case r.Method == http.MethodPost && r.Header.Get("Refuse") != "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "event: endpoint\ndata: messages?s=%s\n\n", session)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case text := <-s[session]:
			_, _ = io.WriteString(w, text)
		}
	}
}

// openStream is a stream of session a, through a relay.
func openStream(t *testing.T) (backend sseBackend, p *relay.Relay, address string, in *bufio.Reader) {
	t.Helper()
	backend = sseBackend{"a": make(chan string)}
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	p, proxy := relayTo(t, server.URL, relay.Options{})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy.URL+"/sse?s=a", nil)
	r.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Body.Close() })
	return backend, p, proxy.URL, bufio.NewReader(stream.Body)
}

// endsCleanly waits for the end of a stream.
func endsCleanly(t *testing.T, in *bufio.Reader, why string) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := in.ReadByte(); ended <- err }()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v, want as if the server had ended it: %s", err, why)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("the stream goes on: %s", why)
	}
}

// At the end of the proxy a stream ends on which nothing is awaited, and one on which
// something is ends after it. Where that cannot be told, it is not cut.
func TestIdleStreamsEndWithTheProxy(t *testing.T) {
	const call, note = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	const answer, progress = `{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":1}}`
	event := func(text string) string { return "event: message\r\ndata: " + text + "\r\n\r\n" }
	for name, c := range map[string]struct {
		why          string
		posts        []string
		refuse       bool
		before       string // said before the end
		then, tilEnd string // said after its beginning; then the stream goes on, and after tilEnd it ends
		open         bool   // it does not end
	}{
		"nothing asked":  {why: "nothing is awaited"},
		"a notification": {why: "it has no answer", posts: []string{note}},
		"answered":       {why: "the answer has come", posts: []string{call}, before: event(progress) + "event: ping\ndata: 12:00\n\n" + event(answer)},
		"refused":        {why: "no answer comes", posts: []string{call}, refuse: true},
		"asked":          {why: "progress is no answer", posts: []string{call}, then: event(progress), tilEnd: event(answer)},
		"asked twice":    {why: "one more is awaited", posts: []string{call, strings.Replace(call, "1,", "2,", 1)}, then: event(answer), tilEnd: event(`{"id":2,"error":{"code":1}}`)},
		"not understood": {why: "a batch might hold a call, and a list its answer: it is not cut", posts: []string{"[" + call + "]"}, then: "data: [1]\n\n", open: true},
		"long answer":    {why: "the whole of it passes", posts: []string{call}, tilEnd: event(`{"id":1,"result":"` + strings.Repeat("x", 1<<20) + `"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			backend, p, address, in := openStream(t)
			reads := func(want string) {
				t.Helper()
				got := make([]byte, len(want))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
					t.Fatalf("the client read %.100q, %v; want %.100q", got, err, want)
				}
			}
			reads("event: endpoint\ndata: messages?s=a\n\n")
			for _, body := range c.posts {
				header := http.Header{}
				if c.refuse {
					header.Set("Refuse", "1")
				}
				send(t, http.MethodPost, address+"/messages?s=a", body, header)
			}
			if c.before != "" {
				backend["a"] <- c.before
				reads(c.before)
			}
			p.Drain()
			if c.then != "" {
				backend["a"] <- c.then
				reads(c.then)
			}
			if c.tilEnd != "" {
				backend["a"] <- c.tilEnd
				reads(c.tilEnd)
			}
			if !c.open {
				endsCleanly(t, in, c.why)
			}
			if again, _ := send(t, http.MethodGet, address+"/sse?s=a", "", http.Header{"Accept": {"text/event-stream"}}); again.StatusCode != http.StatusServiceUnavailable || again.Header.Get("Retry-After") == "" {
				t.Errorf("a stream that is opened now: %s", again.Status)
			}
		})
	}
}
