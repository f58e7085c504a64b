package bridge

import (
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
	stream io.ReadWriteCloser
	out    chan []byte
	gone   chan struct{} // closed when over

	// What follows is guarded by Bridge.mu.
	over      bool
	calls     map[int64]*call
	questions map[int64]question
	spoken    []string  // the versions of the protocol that are known to be spoken; nil before that is asked
	heard     time.Time // when the server said something last
	pinged    time.Time // when it was asked for a sign of life; zero once it gave one
}

// attach opens a stream, serves it until it ends, and says why it ended.
func (b *Bridge) attach(ctx context.Context) error {
	stream, err := b.o.Open(ctx)
	if err != nil {
		return err
	}
	l := &link{stream: stream, out: make(chan []byte, linkQueue), gone: make(chan struct{}),
		calls: map[int64]*call{}, questions: map[int64]question{}}
	b.mu.Lock()
	b.away = "the MCP server has not answered initialize yet"
	b.mu.Unlock()
	ended := make(chan error, 3)
	var work sync.WaitGroup
	work.Go(func() { ended <- b.write(l) })
	work.Go(func() { ended <- b.read(l) })
	work.Go(func() {
		if err := b.greet(ctx, l); err != nil {
			ended <- err
			return
		}
		b.up(l)
		work.Go(func() { b.restore(ctx, l) })
		ended <- b.watch(ctx, l)
	})
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.down(l)
	_ = stream.Close() // it has ended, or is to
	work.Wait()
	b.dropQueued(l)
	return err
}

func (b *Bridge) up(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !l.over {
		b.link = l
		b.o.Log.Info("attached to the MCP server")
	}
}

// down takes the link away, and answers every call that was under way.
func (b *Bridge) down(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == l {
		b.link = nil
	}
	b.away = "the MCP server is away: its stream has just ended"
	l.over = true
	close(l.gone)
	for _, c := range l.calls {
		b.failLocked(c, restarted())
	}
}

func (b *Bridge) attached() (*link, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return nil, unavailable(b.away)
	}
	return b.link, nil
}

// send queues a message, and waits while the queue is full.
func (b *Bridge) send(ctx context.Context, l *link, m rpcMessage) error {
	line, err := encodeMessage(m)
	if err != nil {
		return fmt.Errorf("the message cannot be written as JSON: %w", err)
	}
	if !b.o.Requests.Take(len(line)) {
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
	b.o.Requests.Give(len(line))
	return err
}

// offer queues a message if there is room. A server that reads nothing has no use
// for more.
func (b *Bridge) offer(l *link, m rpcMessage) {
	line, err := encodeMessage(m)
	if err != nil || !b.o.Requests.Take(len(line)) {
		return
	}
	select {
	case l.out <- line:
	default:
		b.o.Requests.Give(len(line))
	}
}

// write gives the server what is queued, until the link is over.
func (b *Bridge) write(l *link) error {
	// A proxy that was killed while it wrote has left half a line.
	if _, err := l.stream.Write([]byte("\n")); err != nil {
		return fmt.Errorf("write to the MCP server: %w", err)
	}
	for {
		select {
		case line := <-l.out:
			_, err := l.stream.Write(append(line, '\n'))
			b.o.Requests.Give(len(line))
			if err != nil {
				return fmt.Errorf("write to the MCP server: %w", err)
			}
		case <-l.gone:
			return nil
		}
	}
}

// dropQueued releases what a link that is over has not written.
func (b *Bridge) dropQueued(l *link) {
	for {
		select {
		case line := <-l.out:
			b.o.Requests.Give(len(line))
		default:
			return
		}
	}
}

// read takes what the server prints, until it prints no more.
func (b *Bridge) read(l *link) error {
	in := newLines(l.stream, MaxLine)
	for {
		line, whole, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the stream of its output has ended")
		case err != nil:
			return err
		case !whole:
			b.heard(l)
			b.tooLong(l, in.id())
			continue
		case len(line) == 0:
			continue
		}
		m, err := decode(line)
		if err != nil && m == nil {
			b.o.Log.Debug("the MCP server printed a line that is no message", "bytes", len(line), "error", err)
			continue
		}
		b.heard(l)
		b.route(l, m, err)
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

func (b *Bridge) heard(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.heard, l.pinged = time.Now(), time.Time{}
}

// silenceLocked is for how long the server has owed a sign of life.
func (l *link) silenceLocked() time.Duration {
	if l.pinged.IsZero() {
		return 0
	}
	return time.Since(l.pinged)
}

// watch asks a server that is silent for a sign of life, until the link is over. It
// returns an error once there has been none for too long.
func (b *Bridge) watch(ctx context.Context, l *link) error {
	patience := max(leastPatience, b.o.RequestTimeout)
	for {
		pause := time.NewTimer(b.ping(l, pingEvery))
		select {
		case <-pause.C:
		case <-l.gone:
			pause.Stop()
			return nil
		}
		if !b.owes(l) {
			continue
		}
		if _, why := b.roundTrip(ctx, l, "ping", nil, patience); why != nil && b.owes(l) {
			return b.startAgain(ctx, l, fmt.Errorf("it has said nothing for %s", patience))
		}
	}
}

// ping is how long to wait until silence has lasted for so long.
func (b *Bridge) ping(l *link, silence time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(silence-time.Since(l.heard), time.Second)
}

// owes tells whether the server has been silent, and notes since when it is asked.
func (b *Bridge) owes(l *link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.over || time.Since(l.heard) < pingEvery {
		return false
	}
	if l.pinged.IsZero() {
		l.pinged = time.Now()
	}
	return true
}

// startAgain starts a server again that can be reached and does not answer.
func (b *Bridge) startAgain(ctx context.Context, l *link, why error) error {
	select {
	case <-l.gone:
		return why // it is another matter: the stream has ended
	default:
	}
	if b.o.Restart == nil || ctx.Err() != nil {
		return why
	}
	if err := b.o.Restart(ctx); err != nil {
		return errors.Join(why, fmt.Errorf("start it again: %w", err))
	}
	return fmt.Errorf("%w: it is started again", why)
}
