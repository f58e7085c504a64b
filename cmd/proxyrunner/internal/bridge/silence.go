package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pingEvery is after how much silence the server is asked for a sign of life.
	pingEvery = 10 * time.Second
	// pingTimeout is when a server that gives none is no longer healthy.
	pingTimeout = 10 * time.Second
	// leastPatience is how long it may say nothing at all before it is started again,
	// unless a call may take longer: some do nothing else while a tool works.
	leastPatience = time.Minute
)

// heard notes that the server lives.
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
