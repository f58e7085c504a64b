package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const linkQueue = 1024

// link is one stream to the server, from its opening to its end.
type link struct {
	bridge *Bridge
	stream io.ReadWriteCloser
	out    chan []byte
	gone   chan struct{} // closed when over

	// What follows is guarded by Bridge.mu.
	over      bool
	calls     map[int64]*call
	questions map[int64]question
	// givenUp are the calls, by their number, that nobody waits for any more, and of which the server has not said that it
	// has ended: it may still speak for the client that made them. blind says that there are, or were, more than are kept.
	givenUp  map[int64]*session
	blind    bool
	spoken   []string  // the versions of the protocol that are known to be spoken; nil before that is asked
	heardAt  time.Time // when the server said something last
	pingedAt time.Time // when it was asked for a sign of life; zero once it gave one
}

// attach opens a stream, serves it until it ends, and says why it ended.
func (b *Bridge) attach(ctx context.Context) error {
	stream, err := b.o.Open(ctx)
	if err != nil {
		return err
	}
	l := &link{bridge: b, stream: stream, out: make(chan []byte, linkQueue), gone: make(chan struct{}),
		calls: map[int64]*call{}, questions: map[int64]question{}, givenUp: map[int64]*session{}}
	b.mu.Lock()
	b.away = "the MCP server has not answered initialize yet"
	b.mu.Unlock()
	ended := make(chan error, 3)
	var work sync.WaitGroup
	work.Go(func() { ended <- l.write() })
	work.Go(func() { ended <- l.read() })
	work.Go(func() {
		if err := l.greet(ctx); err != nil {
			ended <- err
			return
		}
		l.up()
		work.Go(func() { l.restore(ctx) })
		ended <- l.watch(ctx)
	})
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.down()
	_ = stream.Close() // it has ended, or is to
	work.Wait()
	l.dropQueued()
	return err
}

func (l *link) up() {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	if !l.over {
		l.bridge.link = l
		l.bridge.o.Log.Info("attached to the MCP server")
		if l.bridge.o.Up != nil {
			l.bridge.o.Up()
		}
	}
}

// down takes the link away, and answers every call that was under way.
func (l *link) down() {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	l.bridge.away = "the MCP server is away: its stream has just ended"
	l.over = true
	close(l.gone)
	if l.bridge.link == l {
		l.bridge.link = nil
		_, busy := l.callerLocked()
		l.bridge.unanswered = busy
	}
	for _, c := range l.calls {
		c.failLocked(restarted())
	}
}

// maxGivenUp is how many calls that were given up are kept.
const maxGivenUp = 1024

// giveUpLocked keeps a call that nobody waits for any more until the server answers it. The protocol asks a server not to
// answer what was cancelled, so some stay until the link ends; with too many, all that is kept is that there are.
func (l *link) giveUpLocked(c *call) {
	if c.own || c.listens != nil || l.over || l.blind {
		return
	}
	if l.givenUp[c.number] = c.session; len(l.givenUp) > maxGivenUp {
		l.bridge.o.Log.Warn("the MCP server answers no calls that were given up: until it restarts, no client is asked anything, or gets its logs", "calls", maxGivenUp)
		l.blind = true
		clear(l.givenUp)
	}
}

// answeredLocked is the call that the server has answered, if somebody waits for it.
func (l *link) answeredLocked(id rpcID) *call {
	if n, ok := id.int(); ok {
		delete(l.givenUp, n)
	}
	return l.callLocked(id)
}

func (b *Bridge) attached() (*link, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return nil, unavailable(b.away)
	}
	return b.link, nil
}

// numberLocked is the next number that nothing under way has. It stays below 2^31:
// there are servers that keep it in 32 bits.
func (l *link) numberLocked() int64 {
	for {
		if l.bridge.lastID++; l.bridge.lastID <= 0 {
			l.bridge.lastID = 1
		}
		n := int64(l.bridge.lastID)
		_, asked := l.questions[n]
		_, given := l.givenUp[n]
		if _, called := l.calls[n]; !called && !asked && !given {
			return n
		}
	}
}

// send queues a message, and waits while the queue is full.
func (l *link) send(ctx context.Context, m rpcMessage) error {
	line, err := encodeMessage(m)
	if err != nil {
		return fmt.Errorf("the message cannot be written as JSON: %w", err)
	}
	if !l.bridge.o.Requests.Take(len(line)) {
		return errors.New("too much waits for the MCP server")
	}
	select {
	case l.out <- line:
		return nil
	case <-l.gone:
		err = errors.New("the MCP server has just gone away")
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.bridge.o.Requests.Give(len(line))
	return err
}

// offer queues a message if there is room. A server that reads nothing has no use
// for more.
func (l *link) offer(m rpcMessage) {
	line, err := encodeMessage(m)
	if err != nil || !l.bridge.o.Requests.Take(len(line)) {
		return
	}
	select {
	case l.out <- line:
	default:
		l.bridge.o.Requests.Give(len(line))
	}
}

// write gives the server what is queued, until the link is over.
func (l *link) write() error {
	// A proxy that was killed while it wrote has left half a line.
	if _, err := l.stream.Write([]byte("\n")); err != nil {
		return fmt.Errorf("write to the MCP server: %w", err)
	}
	for {
		select {
		case line := <-l.out:
			_, err := l.stream.Write(append(line, '\n'))
			l.bridge.o.Requests.Give(len(line))
			if err != nil {
				return fmt.Errorf("write to the MCP server: %w", err)
			}
		case <-l.gone:
			return nil
		}
	}
}

// dropQueued releases what a link that is over has not written.
func (l *link) dropQueued() {
	for {
		select {
		case line := <-l.out:
			l.bridge.o.Requests.Give(len(line))
		default:
			return
		}
	}
}

// read takes what the server prints, until it prints no more.
func (l *link) read() error {
	in, begun := newLines(l.stream, MaxLine), unreadable{}
	for {
		line, whole, err := in.next()
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // as programs of Windows begin a stream
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the stream of its output has ended")
		case err != nil:
			return err
		case !whole:
			l.heard()
			l.tooLong(in.id())
			continue
		case len(line) == 0:
			continue
		}
		m, err := decode(line)
		if err != nil && m == nil {
			l.bridge.o.Log.Debug("the MCP server printed a line that is no message", "bytes", len(line), "error", err)
			l.unreadableAnswers(begun.line(line, err))
			continue
		}
		l.heard()
		l.unreadableAnswers(begun.end())
		l.route(m, err)
	}
}

const (
	// pingEvery is after how much silence the server is asked for a sign of life.
	pingEvery = 10 * time.Second
	// pingTimeout is when a server that gives none is no longer healthy.
	pingTimeout = 10 * time.Second
	// leastPatience is how long it may say nothing at all before it is started again,
	// unless a call may take longer: some do nothing else while a tool works.
	leastPatience = time.Minute
)

func (l *link) heard() {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	l.heardLocked()
}

func (l *link) heardLocked() { l.heardAt, l.pingedAt = time.Now(), time.Time{} }

func (l *link) silence() time.Duration {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	return l.silenceLocked()
}

// silenceLocked is for how long the server has owed a sign of life.
func (l *link) silenceLocked() time.Duration {
	if l.pingedAt.IsZero() {
		return 0
	}
	return time.Since(l.pingedAt)
}

// watch asks a server that is silent for a sign of life, until the link is over. It
// returns an error once there has been none for too long.
func (l *link) watch(ctx context.Context) error {
	patience := max(leastPatience, l.bridge.o.RequestTimeout)
	for {
		pause := time.NewTimer(l.untilSilent(pingEvery))
		select {
		case <-pause.C:
		case <-l.gone:
			pause.Stop()
			return nil
		}
		if !l.owes() {
			continue
		}
		// A ping may come to nothing at once, because it could not be sent: the server is asked again then.
		if _, why := l.roundTrip(ctx, "ping", nil, patience); why != nil && l.silence() >= patience {
			return l.startAgain(ctx, fmt.Errorf("it has said nothing for %s", patience))
		}
	}
}

// untilSilent is how long to wait until silence has lasted for so long.
func (l *link) untilSilent(silence time.Duration) time.Duration {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	return max(silence-time.Since(l.heardAt), time.Second)
}

// owes tells whether the server has been silent, and notes since when it is asked.
func (l *link) owes() bool {
	l.bridge.mu.Lock()
	defer l.bridge.mu.Unlock()
	if l.over || time.Since(l.heardAt) < pingEvery {
		return false
	}
	if l.pingedAt.IsZero() {
		l.pingedAt = time.Now()
	}
	return true
}

// startAgain starts a server again that can be reached and does not answer.
func (l *link) startAgain(ctx context.Context, why error) error {
	select {
	case <-l.gone:
		return why // it is another matter: the stream has ended
	default:
	}
	if l.bridge.o.Restart == nil || ctx.Err() != nil {
		return why
	}
	if err := l.bridge.o.Restart(ctx); err != nil {
		return errors.Join(why, fmt.Errorf("start it again: %w", err))
	}
	return fmt.Errorf("%w: it is started again", why)
}
