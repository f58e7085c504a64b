package bridge

import (
	"container/list"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

const (
	// boxBytes is how much waits for one reader. The longest message fits.
	boxBytes = 16 << 20
	// unreadBytes is how much waits for a reader that is not there.
	unreadBytes = 256 << 10
	// slow is how long a message may wait for a reader that is there.
	slow = 30 * time.Second
)

// mailboxes move messages into mailboxes and out of them, within a budget that all share.
// When memory is short, what is kept goes first, and then what has waited for longest.
type mailboxes struct {
	answers *limit.Budget
	log     *slog.Logger

	mu       *sync.Mutex           // Bridge.mu, which guards what follows, and each mailbox
	draining bool                  // streams of sessions get no new readers
	waiting  map[*mailbox]struct{} // those that are not empty
	// histories are the mailboxes of which something is kept, of *mailbox, the one that has
	// been silent for longest first, and keptBytes how much.
	histories list.List
	keptBytes int
}

// mailbox holds the messages for one reader until it has received them. It is
// guarded by Bridge.mu, but for ready.
type mailbox struct {
	items   []item
	bytes   int           // of items, and of the one that is being written
	writing int           // of that one alone
	since   time.Time     // when the reader took the last one, or when the first one came
	ready   chan struct{} // tells that there is something; has room for one
	reader  *reader       // nil while there is none
	closed  bool          // nothing comes in any more
	kept    history       // what the reader has taken, in case that it did not arrive
}

// reader is whoever writes the messages of a mailbox to a client.
type reader struct {
	cut    chan struct{} // closed when it is to end
	isCut  bool
	finish bool   // it ends when the mailbox is empty
	abort  func() // makes a write under way fail
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// attend makes the caller the reader, who ends when cut is closed and then calls
// leave. ok is false if there is another one, or the proxy is ending: private
// mailboxes, of one call, are served to the end.
func (m *mailboxes) attend(box *mailbox, private bool, abort func()) (r *reader, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box.reader != nil || box.closed || (m.draining && !private) {
		return nil, false
	}
	box.reader = &reader{cut: make(chan struct{}), abort: abort}
	box.since = time.Now()
	return box.reader, true
}

// leave ends the reader. What it has not taken stays for the next one, if there can be one:
// a stream without a name cannot be asked for.
func (m *mailboxes) leave(box *mailbox, r *reader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box.reader == r { // not if another one has taken over
		m.writtenLocked(box)
		box.reader = nil
	}
	if box.reader == nil && box.kept.name == "" {
		m.discardLocked(box)
	}
}

// discard empties a mailbox for good.
func (m *mailboxes) discard(box *mailbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discardLocked(box)
}

func (m *mailboxes) discardLocked(box *mailbox) {
	box.closed = true
	m.emptyLocked(box)
	m.forgetLocked(box)
}

// pushMessageLocked is pushLocked for a message that is lost if it cannot be written as JSON.
func (m *mailboxes) pushMessageLocked(box *mailbox, message rpcMessage) {
	if data, err := encodeMessage(message); err == nil {
		m.pushLocked(box, item{data: data})
	}
}

// pushLocked puts a message into a mailbox. It says false if the message is lost:
// nobody reads and there is much already, or the reader is too slow and loses its
// stream.
func (m *mailboxes) pushLocked(box *mailbox, i item) bool {
	if box.closed || (box.reader != nil && box.reader.isCut) {
		return false
	}
	size, now := i.size(), time.Now()
	if box.bytes == 0 {
		box.since = now
	} else if box.reader != nil && (box.bytes+size > boxBytes || now.Sub(box.since) > slow) {
		m.log.Warn("a client reads too slowly: its stream is ended", "bytes", box.bytes, "waiting", now.Sub(box.since).String())
		m.cutLocked(box)
		return false
	}
	if box.reader == nil && !i.answer && box.bytes+size > unreadBytes {
		return false
	}
	if !m.roomLocked(box, size) {
		m.cutLocked(box) // what is missing must not be overlooked
		return false
	}
	box.items = append(box.items, i)
	box.bytes += size
	m.waiting[box] = struct{}{}
	box.tell()
	return true
}

func (box *mailbox) tell() {
	select {
	case box.ready <- struct{}{}:
	default:
	}
}

// roomLocked takes room for one more message, if need be from other mailboxes. It
// says false if there is none, or the mailbox itself had to make it.
func (m *mailboxes) roomLocked(box *mailbox, size int) bool {
	for !m.answers.Take(size) {
		if m.forgetOldestLocked() {
			continue
		}
		if !m.evictLocked() || (box.reader != nil && box.reader.isCut) {
			return false
		}
	}
	return true
}

// evictLocked makes room: whose messages have waited for longest loses them.
func (m *mailboxes) evictLocked() bool {
	var oldest *mailbox
	for box := range m.waiting {
		if oldest == nil || box.since.Before(oldest.since) {
			oldest = box
		}
	}
	if oldest == nil {
		return false
	}
	m.log.Warn("too much waits for clients: the one that has not read for longest loses it", "bytes", oldest.bytes)
	m.cutLocked(oldest)
	return true
}

// cutLocked ends the reader, if there is one, and drops what waits for it.
func (m *mailboxes) cutLocked(box *mailbox) {
	m.emptyLocked(box)
	if box.reader != nil {
		box.reader.cutLocked()
	}
}

func (r *reader) cutLocked() {
	if !r.isCut {
		r.isCut = true
		close(r.cut)
		r.abort()
	}
}

// emptyLocked drops what waits. A message that is being written counts as dropped:
// the write is about to fail.
func (m *mailboxes) emptyLocked(box *mailbox) {
	m.answers.Give(box.bytes)
	box.items, box.bytes, box.writing = nil, 0, 0
	delete(m.waiting, box)
}

// take returns the first message. The caller takes no other before it has written
// this one.
func (m *mailboxes) take(box *mailbox, r *reader) (i item, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box.reader != r {
		return item{}, false
	}
	m.writtenLocked(box)
	if len(box.items) == 0 || r.isCut {
		return item{}, false
	}
	i, box.items[0] = box.items[0], item{}
	box.items = box.items[1:]
	box.writing, box.since = i.size(), time.Now()
	m.keepLocked(box, &i)
	return i, true
}

func (m *mailboxes) writtenLocked(box *mailbox) {
	if box.writing > 0 {
		m.answers.Give(box.writing)
		box.bytes -= box.writing
		box.writing = 0
	}
	if box.bytes == 0 {
		box.items = nil
		delete(m.waiting, box)
		if box.reader != nil && box.reader.finish {
			m.cutLocked(box)
		}
	}
}

// next waits for a message. ok is false when the reader is to end; alive is asked
// for when nothing has come for a while.
func (m *mailboxes) next(ctx context.Context, box *mailbox, r *reader, alive func() error) (i item, ok bool) {
	for {
		if i, ok := m.take(box, r); ok {
			return i, true
		}
		tick := time.NewTimer(keepAlive)
		select {
		case <-ctx.Done():
		case <-r.cut:
		case <-box.ready:
			tick.Stop()
			continue
		case <-tick.C:
			if alive() == nil {
				continue
			}
		}
		tick.Stop()
		return item{}, false
	}
}
