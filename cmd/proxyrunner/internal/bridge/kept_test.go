package bridge

import (
	"fmt"
	"math"
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
		s := opened(t, b, "", true)
		sayAll(t, b, s, 10, big)
		all = append(all, s.box)
	}
	if b.mail.keptBytes > maxHistory || b.mail.keptBytes < maxHistory/2 {
		t.Errorf("%d bytes are kept, want nearly %d", b.mail.keptBytes, maxHistory)
	}
	if first, last := len(all[0].kept.items), len(all[49].kept.items); first != 0 || last != maxKeptBytes/(big+itemBytes) {
		t.Errorf("of the first stream %d events are kept, of the last %d", first, last)
	}
	s := opened(t, b, "", true)
	sayAll(t, b, s, 100, 10)
	if n := len(s.box.kept.items); n != maxKept {
		t.Errorf("%d events are kept, want %d", n, maxKept)
	}
	for push(b, s.box, 1<<20, false) && s.box.bytes < 15<<20 {
	}
	b.endAll()
	if left := b.o.Answers.Left(); left != limit.Total || b.mail.keptBytes != 0 || b.mail.histories.Len() != 0 {
		t.Errorf("%d bytes are left of %d, %d kept", left, limit.Total, b.mail.keptBytes)
	}
}

// push sends a message of so many bytes.
func push(b *Bridge, box *mailbox, size int, answer bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mail.pushLocked(box, item{data: make([]byte, size), answer: answer})
}

// sayAll sends n messages to a session, and reads each.
func sayAll(t *testing.T, b *Bridge, s *session, n, size int) {
	t.Helper()
	for range n {
		push(b, s.box, size, false)
		if _, ok := b.mail.take(s.box, s.box.reader); !ok {
			t.Fatal("nothing comes out")
		}
	}
}

// What is not kept leaves a gap: a client that resumed before it would miss a message, and not know.
func TestNothingIsKeptBeforeAGap(t *testing.T) {
	for name, size := range map[string]int{"too long to be kept": maxKeptBytes + 1, "kept": 10} {
		t.Run(name, func(t *testing.T) {
			b := New(Options{})
			s := opened(t, b, "", true)
			for _, n := range []int{10, size, 10} {
				sayAll(t, b, s, 1, n)
			}
			want := map[bool]int{true: 1, false: 3}[size > maxKeptBytes]
			if n := len(s.box.kept.items); n != want {
				t.Errorf("%d messages are kept, want %d", n, want)
			}
		})
	}
}

// Waiting messages count more than what was written.
func TestHistoryMakesRoom(t *testing.T) {
	b := New(Options{Answers: limit.NewBudget(1000 + itemBytes)})
	s, _ := b.open("")
	r, _ := b.mail.attend(s.box, false, func() {})
	push(b, s.box, 300, false)
	b.mail.take(s.box, r) // 300 that is written, and kept
	if !push(b, s.box, 600, false) || r.isCut {
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
		push(b, box, 1000, true)
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

func TestNumbersBeginAnew(t *testing.T) {
	b := New(Options{})
	l := &link{bridge: b, calls: map[int64]*call{1: nil, math.MaxInt32: nil}, questions: map[int64]question{2: {}}}
	b.lastID = math.MaxInt32 - 2
	got := []int64{l.numberLocked(), l.numberLocked(), l.numberLocked()}
	if diff := cmp.Diff([]int64{math.MaxInt32 - 1, 3, 4}, got); diff != "" {
		t.Errorf("numbers, without those under way (-want +got):\n%s", diff)
	}
}
