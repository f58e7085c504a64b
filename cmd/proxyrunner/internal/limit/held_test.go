package limit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/front"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

// attached is a bridge to a server of stdio, which takes every line, holds none, and answers what opens a session or
// changes what the proxy keeps. A call of a tool gets result, or stays under way if that is empty.
func attached(t *testing.T, result string, o bridge.Options) (b *bridge.Bridge, stop func()) {
	t.Helper()
	o.Open = func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		go answerLines(theirs, result)
		return ours, nil
	}
	b = bridge.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = b.Run(ctx); close(ended) }()
	return b, func() { cancel(); <-ended }
}

func answerLines(conn net.Conn, result string) {
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, more, err := in.ReadLine()
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(line, &m) // an empty line is none
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if err != nil {
			return
		}
		switch m.Method {
		case "initialize":
			_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`+"\n", m.ID)
		case "server/discover":
			_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"x","data":{"supported":["2026-07-28","2025-06-18"]}}}`+"\n", m.ID)
		case "resources/subscribe", "logging/setLevel", "tools/list", "ping":
			_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
		case "tools/call":
			if result != "" {
				_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":"%s"}`+"\n", m.ID, result)
			}
		}
	}
}

// crowd makes requests of clients without credentials.
type crowd struct {
	t *testing.T
	l *memnet.Listener
	// open are the connections that nobody has closed.
	open []net.Conn
}

func (c *crowd) dial() net.Conn {
	c.t.Helper()
	conn, err := c.l.Dial(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.open = append(c.open, conn)
	return conn
}

func (c *crowd) leaveAll() {
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

// send makes one request on a connection of its own, and reads no answer.
func (c *crowd) send(method, path, body string, header ...string) net.Conn {
	c.t.Helper()
	conn := c.dial()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n", method, path, len(body))
	for _, line := range header {
		head += line + "\r\n"
	}
	_, _ = io.WriteString(conn, head+"\r\n"+body) // the proxy may refuse it
	return conn
}

// ask is send that reads the answer, and closes the connection.
func (c *crowd) ask(method, path, body string, header ...string) (*http.Response, string) {
	c.t.Helper()
	conn := c.send(method, path, body, header...)
	defer func() { _ = conn.Close() }() // it was read
	c.open = c.open[:len(c.open)-1]
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	return answer, string(text)
}

// leave is send whose client goes away as soon as the call is under way.
func (c *crowd) leave(method, path, body string, header ...string) {
	c.t.Helper()
	conn := c.send(method, path, body, header...)
	c.open = c.open[:len(c.open)-1]
	synctest.Wait()
	_ = conn.Close()
}

const greeting = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// join opens a session, and answers the header that names it.
func (c *crowd) join() string {
	c.t.Helper()
	answer, text := c.ask(http.MethodPost, "/mcp", greeting)
	if answer.StatusCode != http.StatusOK {
		c.t.Fatalf("initialize: %s: %s", answer.Status, text)
	}
	return "Mcp-Session-Id: " + answer.Header.Get("Mcp-Session-Id")
}

// stream opens a session of sse, and answers where it posts.
func (c *crowd) stream() string {
	c.t.Helper()
	conn := c.send(http.MethodGet, "/sse", "")
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if path, is := strings.CutPrefix(line, "data: "); is {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			return strings.TrimSpace(path)
		}
	}
}

// refused is send whose answer must be that the request is refused, in words that name the bound. It is read
// while the test goes on.
func (c *crowd) refused(want, body string, header ...string) {
	c.t.Helper()
	conn := c.send(http.MethodPost, "/mcp", body, header...)
	go func() {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), want) {
			c.t.Errorf("%s: %.200s; want 400 and %q", answer.Status, text, want)
		}
	}()
}

// opened are clients of a proxy to a server; stop ends the proxy. It belongs to a bubble of synctest.
func opened(t *testing.T, server front.Server) (c *crowd, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	f, l := front.New("stdio"), memnet.Listen()
	f.Open(server)
	go func() { served <- front.Serve(ctx, l, f, front.Ending{CutStreams: true}) }()
	synctest.Wait()
	return &crowd{t: t, l: l}, func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) // on the clock of the bubble: connections end
	}
}

// manyGoroutines makes the runtime keep the memory of goroutines that have ended, for more than a row has at once: a
// closed net.Pipe keeps the timers of its deadlines, which all fire in one moment on the clock of a bubble, each with a
// goroutine of its own. Those are of the test, and would be counted as what the proxy holds.
func manyGoroutines() {
	var ended sync.WaitGroup
	release := make(chan struct{})
	for range 30_000 {
		ended.Go(func() { <-release })
	}
	close(release)
	ended.Wait()
}

// times makes a visit that is repeated.
func times(n int, visit func(c *crowd)) func(c *crowd) {
	return func(c *crowd) {
		for range n {
			visit(c)
		}
	}
}

// The table "What a client can make the proxy hold" of docs/mcpserver.md: each row has a test here, or one that it names.
func TestWhatAClientCanMakeTheProxyHold(t *testing.T) {
	if raceDetector {
		t.Skip("many requests, which the race detector makes slow; runs without it")
	}
	const (
		many  = 2
		state = 4 << 20
	)
	huge := strings.Repeat("x", 4<<20)
	kib := strings.Repeat("x", 1000)
	for name, row := range map[string]struct {
		mode  string
		visit func(c *crowd)
		held  int64 // MiB
		why   string
	}{
		"ids": {"", times(many, func(c *crowd) {
			c.refused("the id is longer than 1024 bytes", `{"jsonrpc":"2.0","id":"`+huge+`","method":"tools/call"}`)
		}), 2, "it is held until the call is answered, and written into its answer"},
		"ids that are numbers": {"", func(c *crowd) {
			c.refused("the id is longer than 1024 bytes", `{"jsonrpc":"2.0","id":1.`+strings.Repeat("0", 4<<20)+`,"method":"tools/call"}`)
		}, 2, "they are held as they were written"},
		"progress tokens": {"", times(many, func(c *crowd) {
			c.refused("the progress token is longer than 1024 bytes", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"`+huge+`"}}}`)
		}), 2, "it is held until the call is answered, and written into each report"},
		"log level": {"", func(c *crowd) {
			c.refused("the level is longer than 1024 bytes", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"`+huge+`"}}`)
		}, 2, "it is held for the server that comes after this one"},
		"subscription URIs": {"", times(many, func(c *crowd) {
			c.refused("the uri is longer than 8192 bytes", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+huge+`"}}`, c.join())
		}), 2, "they are held until the session ends"},
		"URIs of listen calls": {"", times(many, func(c *crowd) {
			c.refused("the uri is longer than 8192 bytes", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["`+huge+`"]},`+
				`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
				"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
		}), 2, "they are held for as long as the client listens"},
		"many subscriptions": {"", func(c *crowd) {
			for n := range 6 { // no two sessions have a URI in common
				session := c.join()
				for m := range 256 {
					c.ask(http.MethodPost, "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"%d-%d-%s"}}`, n, m, strings.Repeat("x", 8000)), session)
				}
			}
		}, 6, "each is short enough, and all together are not"},
		"calls that nobody waits for": {"", func(c *crowd) {
			session := c.join()
			for n := range 2000 {
				c.leave(http.MethodPost, "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d%s","method":"tools/call","params":{"_meta":{"progressToken":"%s"}}}`, n, kib, kib), session)
			}
		}, 3, "a client that leaves does not end its call"},
		"calls of sse": {"sse", func(c *crowd) {
			path := c.stream()
			for n := range 2000 {
				c.ask(http.MethodPost, path, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d%s","method":"tools/call","params":{"_meta":{"progressToken":"%s"}}}`, n, kib, kib))
			}
		}, 3, "such a call takes no connection"},
		"sessions": {"", times(3000, func(c *crowd) { c.join() }), 6, "they last for two hours"},
		"answers that nobody fetches": {"", times(100, func(c *crowd) {
			session := c.join()
			for n := range 100 {
				c.ask(http.MethodPost, "/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, n), session)
			}
		}), 3, "of a session the streams of its last 16 calls can be asked for again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, detach := attached(t, "", bridge.Options{Mode: row.mode, RequestTimeout: 10 * time.Minute, State: limit.NewShares(state)})
				c, stop := opened(t, b)
				manyGoroutines()
				before := heap()
				row.visit(c)
				time.Sleep(time.Minute) // on the clock of the bubble: what waits for a deadline is let go
				synctest.Wait()
				held := heap() - before
				t.Logf("the proxy holds %.1f MiB", float64(held)/(1<<20))
				if held > row.held<<20 {
					t.Errorf("the proxy holds %d MiB, want at most %d: %s", held>>20, row.held, row.why)
				}
				c.leaveAll()
				time.Sleep(3 * time.Hour) // on the clock of the bubble
				synctest.Wait()
				if left := heap() - before; left > 2<<20 {
					t.Errorf("%d KiB are left after three hours, want none", left>>10)
				}
				detach() // ends all streams
				stop()
			})
		})
	}
}
