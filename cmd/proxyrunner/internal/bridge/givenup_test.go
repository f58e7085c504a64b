package bridge_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
	"github.com/phasegate/phasegate/test/support/mcp/memnet"
)

// party are clients with a stream each, and what has reached them.
type party struct {
	t       *testing.T
	http    *http.Client
	headers []map[string]string

	mu  sync.Mutex
	got map[string][]int // which clients have got a message, by its text
}

const abilities = `"capabilities":{"sampling":{},"elicitation":{}}`

func gather(t *testing.T, l *memnet.Listener, clients int) *party {
	p := &party{t: t, http: l.Client(), got: map[string][]int{}}
	for n := range clients {
		resp := p.do(post(strings.Replace(initialize, `"capabilities":{"roots":{},"sampling":{}}`, abilities, 1), nil))
		header := map[string]string{"Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id")}
		_ = resp.Body.Close()
		if header["Mcp-Session-Id"] == "" {
			t.Fatalf("client %d has no session: %s", n, resp.Status)
		}
		p.headers = append(p.headers, header)
		p.listen(n, p.do(request{method: http.MethodGet, path: "/mcp", header: with(header, "Accept", "text/event-stream")}))
	}
	return p
}

func (p *party) do(r request) *http.Response {
	p.t.Helper()
	resp, err := p.http.Do(r.to(p.t, "http://localhost"))
	if err != nil {
		if p.t.Context().Err() == nil {
			p.t.Error(err)
		}
		return &http.Response{Body: http.NoBody}
	}
	return resp
}

// listen notes what comes on a stream of client n.
func (p *party) listen(n int, resp *http.Response) {
	go func() {
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		for in.Scan() {
			data, is := strings.CutPrefix(in.Text(), "data: ")
			var m message
			if !is || json.Unmarshal([]byte(data), &m) != nil || m.Params["text"] == nil {
				continue
			}
			p.mu.Lock()
			text := fmt.Sprint(m.Params["text"])
			p.got[text] = append(p.got[text], n)
			p.mu.Unlock()
		}
	}()
}

// call makes a call of client n, whose answer nobody waits for.
func (p *party) call(n int, method string) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)
	go func() {
		p.listen(n, p.do(post(body, with(p.headers[n], "Accept", "application/json, text/event-stream"))))
	}()
	synctest.Wait()
}

// foreign is how many messages with such a text have reached others than client n.
func (p *party) foreign(about string, n int) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for text, clients := range p.got {
		for _, c := range clients {
			if strings.HasPrefix(text, about) && c != n {
				count++
			}
		}
	}
	return count
}

// speak has the server log, sample and elicit.
func speak(s *script, about string) {
	synctest.Wait()
	s.say(map[string]any{"method": "notifications/message", "params": map[string]any{"text": about + " log"}})
	s.say(map[string]any{"id": about + " sampling", "method": "sampling/createMessage", "params": map[string]any{"text": about + " sampling"}})
	s.say(map[string]any{"id": about + " elicitation", "method": "elicitation/create", "params": map[string]any{"text": about + " elicitation"}})
	synctest.Wait()
}

// served is a bridge on a network in memory, in a bubble.
func served(t *testing.T) (*script, *memnet.Listener) {
	s := scripted(t)
	s.alive = true
	b, stop := run(t, bridge.Options{Open: s.open, RequestTimeout: 30 * time.Second})
	l, server := memnet.Listen(), &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		stop()
		_ = server.Close()
		_ = s.conn.Close()
		synctest.Wait()
	})
	s.connected()
	s.hear("notifications/initialized")
	synctest.Wait() // it is heard before it is noted that the server is there
	return s, l
}

// Who waits for a call that was given up is told, and so is the server, once: after a cancellation within seconds, since the
// protocol says that such a call is not answered. That it still reports progress changes nothing.
func TestGivenUpIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := served(t)
		p := gather(t, l, 1)
		defer p.http.CloseIdleConnections()
		began, answer := time.Now(), make(chan *http.Response, 1)
		ask := func(body, accept string) (call message) {
			go func() { answer <- p.do(post(body, with(p.headers[0], "Accept", accept))) }()
			return s.hear("x/call")
		}
		told := func(call message, after time.Duration, status int, client string, server map[string]any) {
			t.Helper()
			resp := <-answer
			defer resp.Body.Close()
			m := read(t, resp)
			if took := time.Since(began); resp.StatusCode != status || m.ID != 1.0 || m.Error == nil || !strings.Contains(m.Error.Message, client) || took != after {
				t.Errorf("after %s the client is told %s %+v, want %d and %q after %s", took, resp.Status, m, status, client, after)
			}
			server["requestId"] = call.ID
			if diff := cmp.Diff(server, s.hear("notifications/cancelled").Params); diff != "" {
				t.Errorf("told to the server (-want +got):\n%s", diff)
			}
			began = time.Now()
		}
		never := ask(`{"jsonrpc":"2.0","id":1,"method":"x/call"}`, "text/event-stream")
		told(never, 30*time.Second, http.StatusGatewayTimeout, "did not answer in time", map[string]any{"reason": "the proxy waited too long"})

		long := ask(`{"jsonrpc":"2.0","id":1,"method":"x/call","params":{"_meta":{"progressToken":"p"}}}`, "application/json")
		p.do(post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, p.headers[0]))
		s.say(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": long.ID, "progress": 1}})
		told(long, 3*time.Second, http.StatusOK, "the client has cancelled this request", map[string]any{})

		next := ask(`{"jsonrpc":"2.0","id":1,"method":"x/call"}`, "application/json") // nothing else was told to the server
		s.answer(next, "done")
		if got := read(t, <-answer); string(got.Result) != `"done"` {
			t.Errorf("the next call was answered %+v", got)
		}
	})
}

// The server goes on with a call that nobody waits for any more, and speaks for its client: of what it says nothing may
// reach another one, until it has answered.
func TestCallThatWasGivenUp(t *testing.T) {
	const clients = 20
	for name, giveUp := range map[string]func(p *party){
		"timeout": func(*party) { time.Sleep(31 * time.Second) },
		"cancelled": func(p *party) {
			p.do(post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, p.headers[0]))
			time.Sleep(4 * time.Second)
		},
		"session ended": func(p *party) { p.do(request{http.MethodDelete, "/mcp", "", p.headers[0]}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := served(t)
				p := gather(t, l, clients)
				defer p.http.CloseIdleConnections()
				p.call(0, "x/slow")
				slow := s.hear("x/slow")
				giveUp(p)
				speak(s, "slow, alone:")
				p.call(1, "x/other")
				speak(s, "slow, beside another:")
				if got := p.foreign("slow", 0); got != 0 {
					t.Errorf("%d messages of the call that was given up reached other clients, want 0: %v", got, p.got)
				}
				s.answer(slow, "at last")
				speak(s, "other:")
				if diff := cmp.Diff(0, p.foreign("other:", 1)); diff != "" {
					t.Errorf("messages of the other call that reached a third client (-want +got):\n%s", diff)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, what := range []string{"log", "sampling", "elicitation"} {
					if diff := cmp.Diff([]int{1}, p.got["other: "+what]); diff != "" {
						t.Errorf("%s once the server has answered (-want +got):\n%s", what, diff)
					}
				}
			})
		})
	}
}

// With too many calls that were given up and never answered nobody is asked until the server is another one, and calls go on.
func TestManyCallsThatWereGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := served(t)
		p := gather(t, l, 2)
		defer p.http.CloseIdleConnections()
		for range 5 {
			for n := range 250 {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x/slow"}`, n)
				go func() { _ = p.do(post(body, p.headers[0])).Body.Close() }()
			}
			time.Sleep(31 * time.Second)
			for len(s.heard) > 0 {
				if m := <-s.heard; m.Method == "x/slow" && m.ID == nil {
					t.Error("a call without a number")
				}
			}
		}
		p.call(1, "x/other")
		speak(s, "any:")
		if got := p.foreign("any:", -1); got != 0 {
			t.Errorf("%d messages reached a client, want 0", got)
		}
		_ = s.conn.Close()
		time.Sleep(time.Minute)
		s.connected()
		for len(s.heard) > 0 {
			<-s.heard
		}
		p.call(1, "x/another")
		speak(s, "new:")
		if diff := cmp.Diff(3, p.foreign("new:", 0)); diff != "" {
			t.Errorf("messages of the new server (-want +got):\n%s", diff)
		}
	})
}
