package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// call is a request of a client that the server has not answered.
type call struct {
	bridge  *Bridge
	number  int64 // what the server knows it by, and its progress
	session *session
	id      rpcID // what the client knows it by
	// box takes the answer and, if streams, reports of progress.
	box     *mailbox
	streams bool
	within  time.Duration // how long the server may take, from one sign of life to the next

	// method and about are those of a call that the server is to be told again when it
	// was replaced: the URI of a subscription, or the level of logs. Empty for others.
	method, about string
	// modern says that it is of a version without sessions, and listens, if it is not nil,
	// what it is to be told until it ends.
	modern  bool
	listens *interests

	// own says that it is the bridge's own, and no client's.
	own bool

	// What follows is guarded by Bridge.mu.
	held  int // of Options.State
	link  *link
	timer *time.Timer
	token json.RawMessage // the client's progress token; nil if it wants none
}

const methodSubscribe, methodUnsubscribe = "resources/subscribe", "resources/unsubscribe"

// ask gives a request to the server. The answer, whatever it is, goes to box.
func (s *session) ask(ctx context.Context, req *rpcRequest, box *mailbox, streams bool) {
	c := &call{bridge: s.bridge, session: s, id: req.ID, box: box, streams: streams, within: s.bridge.o.RequestTimeout}
	l, why := s.bridge.attached()
	if why != nil {
		c.fail(why)
		return
	}
	if v := version(req); v != "" {
		l.askModern(ctx, c, req, v)
		return
	}
	switch req.Method {
	case "initialize":
		s.introduce(req.Params)
		result, why := l.welcome(req.Params)
		if why != nil {
			c.fail(why)
			return
		}
		c.reply(&rpcResponse{Result: result}, nil)
		return
	case methodSubscribe, methodUnsubscribe:
		c.method = req.Method
		_ = json.Unmarshal(at(req.Params, "uri"), &c.about) // without one it is the server that refuses
		if req.Method == methodUnsubscribe && c.unsubscribe() {
			return
		}
	case setLevel:
		c.method = req.Method
		_ = json.Unmarshal(at(req.Params, "level"), &c.about)
	}
	l.forward(ctx, c, req)
}

// forward sends the request under the call's number.
func (l *link) forward(ctx context.Context, c *call, req *rpcRequest) {
	c.token = at(req.Params, "_meta", "progressToken")
	if why := l.begin(c); why != nil {
		c.fail(why)
		return
	}
	params, _ := swap(req.Params, c.number, "_meta", "progressToken")
	ctx, cancel := context.WithTimeout(ctx, l.bridge.o.RequestTimeout) // for a server that does not read
	defer cancel()
	if err := l.send(ctx, &rpcRequest{ID: number(c.number), Method: req.Method, Params: params}); err != nil {
		l.bridge.mu.Lock()
		defer l.bridge.mu.Unlock()
		c.failLocked(unavailable(err.Error()))
		delete(l.givenUp, c.number) // the server has not heard of it
	}
}

// begin notes the call, so that its answer is known.
func (l *link) begin(c *call) *failure {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	if l.over {
		return unavailable(l.bridge.away)
	}
	if c.session.over {
		return sessionEnded()
	}
	if _, twice := c.session.calls[c.id]; twice {
		return &failure{status: http.StatusBadRequest, code: codeInvalidRequest,
			message: fmt.Sprintf("the id %s is that of a request that is still under way: use another one", c.id)}
	}
	if why := c.holdLocked(); why != nil {
		return why
	}
	c.link, c.number = l, l.numberLocked()
	l.calls[c.number] = c
	c.session.calls[c.id] = c
	c.timer = time.AfterFunc(c.within, func() {
		l.bridge.mu.Lock()
		defer l.bridge.mu.Unlock()
		c.giveUpLocked("the proxy waited too long", timedOut())
	})
	return nil
}

// giveUpLocked answers for the server, and tells it that nobody waits any more.
func (c *call) giveUpLocked(reason string, why *failure) {
	if c.failLocked(why) {
		c.link.giveUpLocked(c)
		c.cancelLocked(reason)
	}
}

// cancelLocked tells the server that nobody waits for a call any more.
func (c *call) cancelLocked(reason string) {
	params, _ := json.Marshal(map[string]any{"requestId": c.number, "reason": reason}) // a number and a text
	c.link.offer(&rpcRequest{Method: "notifications/cancelled", Params: params})
}

// afterCancel is how long the server may still answer a call that its client has cancelled. The protocol says that it does
// not answer; some do.
const afterCancel = 3 * time.Second

// withdrawnLocked ends a call that its client has cancelled, unless the server answers it in a moment. Its progress is
// nobody's any more.
func (c *call) withdrawnLocked() {
	c.token = nil
	c.timer.Stop()
	c.timer = time.AfterFunc(afterCancel, func() {
		c.bridge.mu.Lock()
		defer c.bridge.mu.Unlock()
		if c.failLocked(cancelled()) {
			c.link.giveUpLocked(c)
		}
	})
}

// failLocked answers a call that was begun, if it still waits for an answer.
func (c *call) failLocked(why *failure) bool {
	return c.finishLocked(why.response(c.id), why)
}

// finishLocked is the one place where a call that was begun ends. why is nil if
// the answer is the server's.
func (c *call) finishLocked(resp *rpcResponse, why *failure) bool {
	if c.link.calls[c.number] != c {
		return false
	}
	c.timer.Stop()
	delete(c.link.calls, c.number)
	delete(c.session.calls, c.id)
	c.session.used = time.Now()
	if why == nil && resp.Error == nil {
		if c.method == setLevel {
			c.bridge.level = c.about // the server has one for all
		}
		c.session.subscribeLocked(c)
	}
	c.bridge.o.State.Give(c.session.from, c.held)
	if c.modern {
		resp.Result = completed(resp.Result)
	}
	if c.listens != nil {
		resp.Result, _ = swap(resp.Result, json.RawMessage(c.id), "_meta", metaSubscription)
	}
	c.replyLocked(resp, why)
	c.session.drainLocked()
	return true
}

// fail answers a call that was not begun.
func (c *call) fail(why *failure) { c.reply(why.response(c.id), why) }

func (c *call) reply(resp *rpcResponse, why *failure) {
	c.bridge.mu.Lock()
	defer c.bridge.mu.Unlock()
	c.replyLocked(resp, why)
}

func (c *call) replyLocked(resp *rpcResponse, why *failure) {
	resp.ID = c.id
	if c.modern && why == nil {
		why = refused(resp.Error)
	}
	data, err := encodeMessage(resp)
	if err != nil {
		c.bridge.o.Log.Warn("an answer cannot be written as JSON", "error", err)
		data, _ = encodeMessage((&failure{code: codeInternalError, message: "the answer cannot be written as JSON"}).response(c.id))
	}
	c.bridge.mail.pushLocked(c.box, item{data: data, answer: true, why: why})
}

// progressLocked hands a report of progress to the client that asked for it.
func (c *call) progressLocked(params json.RawMessage) {
	if c.token == nil {
		return
	}
	c.timer.Reset(c.within)
	params, _ = swap(params, c.token, "progressToken")
	box := c.box
	if !c.streams {
		box = c.session.box
	}
	c.bridge.mail.pushMessageLocked(box, &rpcRequest{Method: "notifications/progress", Params: params})
}
