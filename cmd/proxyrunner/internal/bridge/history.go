package bridge

import (
	"container/list"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A client that loses a stream asks for what it has not received: it sends the id of the
// last event that it has. An id names the stream and the number of the event on it. What is
// kept for that is the first to go when memory is short.
const (
	// maxKept and maxKeptBytes are what is kept of one stream, and maxHistory of all.
	maxKept, maxKeptBytes, maxHistory = 64, 512 << 10, 16 << 20
	// maxStreams is how many streams of calls a session may ask for again, and maxNamed how many
	// all of them.
	maxStreams, maxNamed = 16, 16_384
	// ownStream is the session's own.
	ownStream = "0"
	// primeAfter is when a call's stream begins that has nothing to say: from then on it can
	// be asked for. Until then an error has a status of its own.
	primeAfter = time.Second
	// linger is how long a session of sse outlives its stream.
	linger = 15 * time.Second
	// primed is the first version of the protocol whose clients know an event without data.
	primed = "2025-11-25"

	lastEventHeader = "Last-Event-Id"
)

// history is what was written last on a stream. It is guarded by Bridge.mu.
type history struct {
	name  string // of the stream in ids; empty for one that cannot be asked for
	last  int    // the number of the last event
	items []item // the last ones, without a gap
	bytes int
	at    *list.Element // in mailboxes.histories
	// call says that the stream is that of a call, and answered that the answer was taken.
	call, answered bool
	// of and asked are the session of a call's stream that can be asked for, and its place in Bridge.named.
	of    *session
	asked *list.Element
}

func (h *history) id(n int) string { return fmt.Sprintf("%s-%d", h.name, n) }

func (m *mailboxes) lastEvent(box *mailbox) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return box.kept.id(box.kept.last)
}

func readEventID(id string) (stream string, n int, ok bool) {
	stream, number, found := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	return stream, n, found && err == nil && n >= 0
}

// keepLocked numbers a message that is about to be written, and keeps it.
func (m *mailboxes) keepLocked(box *mailbox, i *item) {
	h := &box.kept
	h.answered = h.answered || (h.call && i.answer)
	if h.name == "" {
		return
	}
	h.last++
	i.id = h.id(h.last)
	size := i.size()
	for size <= maxKeptBytes && m.keptBytes+size > maxHistory && m.forgetOldestLocked() {
	}
	if size > maxKeptBytes || !m.answers.Take(size) {
		m.forgetLocked(box) // what comes before a gap is of no use
		return
	}
	m.keptBytes += size
	h.items, h.bytes = append(h.items, *i), h.bytes+size
	for len(h.items) > maxKept || h.bytes > maxKeptBytes {
		m.forgetFirstLocked(h)
	}
	if h.at == nil {
		h.at = m.histories.PushBack(box)
	} else {
		m.histories.MoveToBack(h.at)
	}
}

func (m *mailboxes) forgetFirstLocked(h *history) {
	size := h.items[0].size()
	h.items[0] = item{}
	h.items, h.bytes = h.items[1:], h.bytes-size
	m.keptBytes -= size
	m.answers.Give(size)
}

func (m *mailboxes) forgetLocked(box *mailbox) {
	h := &box.kept
	for len(h.items) > 0 {
		m.forgetFirstLocked(h)
	}
	if h.items = nil; h.at != nil {
		m.histories.Remove(h.at)
		h.at = nil
	}
}

// forgetOldestLocked forgets what the stream has said that has been silent for longest.
func (m *mailboxes) forgetOldestLocked() bool {
	at := m.histories.Front()
	if at != nil {
		m.forgetLocked(at.Value.(*mailbox))
	}
	return at != nil
}

// resume makes the caller the reader of a stream, which goes on after event n. The reader
// before, of a connection that the client has given up, is cut. ok is false if the stream
// has ended.
func (m *mailboxes) resume(box *mailbox, n int, abort func()) (r *reader, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box.closed || m.draining && !box.kept.call {
		return nil, false
	}
	if old := box.reader; old != nil {
		old.cutLocked()
		box.reader = nil
	}
	m.writtenLocked(box)
	box.reader = &reader{cut: make(chan struct{}), abort: abort}
	h := &box.kept
	first := len(h.items) - max(0, min(h.last-n, len(h.items)))
	again := slices.Clone(h.items[first:])
	h.items, h.last = h.items[:first], h.last-len(again)
	for _, i := range again { // it waits again, and its memory with it
		h.bytes, m.keptBytes, box.bytes = h.bytes-i.size(), m.keptBytes-i.size(), box.bytes+i.size()
		h.answered = h.answered && !i.answer
	}
	box.items, box.since = append(again, box.items...), time.Now()
	if len(box.items) > 0 {
		m.waiting[box] = struct{}{}
		box.tell()
	}
	return box.reader, true
}

// isAnswered tells whether nothing follows on the stream of a call.
func (m *mailboxes) isAnswered(box *mailbox) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return box.kept.answered && len(box.items) == 0
}

// unnameLocked makes a call's stream one that cannot be asked for again. Its reader, if there
// is one, still receives what waits.
func (m *mailboxes) unnameLocked(box *mailbox) {
	box.kept.name = ""
	if m.forgetLocked(box); box.reader == nil {
		m.discardLocked(box)
	}
}

// primeLater begins a call's stream that has had nothing to say for a while with an event
// that says nothing, first, after which it can be asked for.
func primeLater(e *events, r *http.Request, box *mailbox, from *reader, first string) {
	if first == "" || r.Header.Get(versionHeader) < primed {
		return
	}
	pause := time.NewTimer(primeAfter)
	defer pause.Stop()
	select {
	case <-box.ready:
		box.tell()
	case <-from.cut:
	case <-r.Context().Done():
	case <-pause.C:
		_ = e.prime(first) // a client that is gone is met again
	}
}
