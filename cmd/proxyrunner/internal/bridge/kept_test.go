package bridge

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

// What is kept is bounded, of one stream and of all, and is the first to go.
func TestHistoryIsBounded(t *testing.T) {
	const big = 100 << 10
	b := New(Options{})
	var all []*mailbox
	for range 50 {
		s, _ := b.open("")
		b.mail.attend(s.box, false, func() {})
		sayAll(t, b, s, 10, big)
		all = append(all, s.box)
	}
	if b.mail.keptBytes > maxHistory || b.mail.keptBytes < maxHistory/2 {
		t.Errorf("%d bytes are kept, want nearly %d", b.mail.keptBytes, maxHistory)
	}
	if first, last := len(all[0].kept.items), len(all[49].kept.items); first != 0 || last != maxKeptBytes/(big+itemBytes) {
		t.Errorf("of the first stream %d events are kept, of the last %d", first, last)
	}
	s, _ := b.open("")
	b.mail.attend(s.box, false, func() {})
	sayAll(t, b, s, 100, 10)
	if n := len(s.box.kept.items); n != maxKept {
		t.Errorf("%d events are kept, want %d", n, maxKept)
	}
	b.mu.Lock()
	for b.mail.pushLocked(s.box, item{data: make([]byte, 1<<20)}) && s.box.bytes < 15<<20 {
	}
	b.mu.Unlock()
	b.endAll()
	if left := b.o.Answers.Left(); left != limit.Total || b.mail.keptBytes != 0 || b.mail.histories.Len() != 0 {
		t.Errorf("%d bytes are left of %d, %d kept", left, limit.Total, b.mail.keptBytes)
	}
}

// sayAll sends n messages to a session, and reads each.
func sayAll(t *testing.T, b *Bridge, s *session, n, size int) {
	t.Helper()
	for range n {
		b.mu.Lock()
		b.mail.pushLocked(s.box, item{data: make([]byte, size)})
		b.mu.Unlock()
		if _, ok := b.mail.take(s.box, s.box.reader); !ok {
			t.Fatal("nothing comes out")
		}
	}
}

// Waiting messages count more than what was written.
func TestHistoryMakesRoom(t *testing.T) {
	b := New(Options{Answers: limit.NewBudget(1000 + itemBytes)})
	s, _ := b.open("")
	r, _ := b.mail.attend(s.box, false, func() {})
	push := func(size int) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.mail.pushLocked(s.box, item{data: make([]byte, size)})
	}
	push(300)
	b.mail.take(s.box, r) // 300 that is written, and kept
	if !push(600) || r.isCut {
		t.Error("what was written stands in the way of what waits")
	}
	if n := len(s.box.kept.items); n != 0 {
		t.Errorf("%d events are kept", n)
	}
}

// The streams of old calls are forgotten, also those that nobody has fetched.
func TestStreamsOfCallsAreBounded(t *testing.T) {
	b := New(Options{})
	s, _ := b.open("")
	for range 3 * maxStreams {
		box := newMailbox()
		r, _ := b.mail.attend(box, true, func() {})
		s.nameStream(box)
		b.mu.Lock()
		b.mail.pushLocked(box, item{data: make([]byte, 1000), answer: true})
		b.mu.Unlock()
		b.mail.leave(box, r)
	}
	if diff := cmp.Diff([]int64{maxStreams, limit.Total - (1000+itemBytes)*maxStreams}, []int64{int64(len(s.streams)), b.o.Answers.Left()}); diff != "" {
		t.Errorf("streams, and bytes left (-want +got):\n%s", diff)
	}
	b.endAll()
	if left := b.o.Answers.Left(); left != limit.Total {
		t.Errorf("%d bytes are lost", limit.Total-left)
	}
}

// A client that comes back at the last moment keeps its session.
func TestComingBackWinsOverTheEnd(t *testing.T) {
	b := New(Options{Mode: ModeSSE})
	s, _ := b.open("")
	r, _ := b.mail.attend(s.box, false, func() {})
	b.mail.leave(s.box, r)
	s.lose()
	if _, ok := b.mail.resume(s.box, 0, func() {}); !ok {
		t.Fatal("the stream cannot be resumed")
	}
	s.endLost(s.lingers)
	if s.over {
		t.Error("the session that was resumed has ended")
	}
}

func TestEventIDs(t *testing.T) {
	for id, want := range map[string]string{"0-3": "0 3 true", "ABC-0": "ABC 0 true", "": " 0 false", "3": "3 0 false", "0--1": "0 -1 false", "0-x": "0 0 false"} {
		stream, n, ok := readEventID(id)
		if diff := cmp.Diff(want, fmt.Sprint(stream, " ", n, " ", ok)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", id, diff)
		}
	}
	e := stream(httptest.NewRecorder())
	if err := e.event("message", "0-1", []byte("{}")); err != nil {
		t.Error(err)
	}
	if got := e.w.(*httptest.ResponseRecorder).Body.String(); got != "id: 0-1\nevent: message\ndata: {}\n\n" {
		t.Errorf("%q", got)
	}
}
