package inflight

import "context"

type mannerKey struct{}

type manner int

const (
	polite manner = iota + 1
	urgent
)

// Politely marks the requests with this context as those that can wait; see Polite.
func Politely(ctx context.Context) context.Context {
	return context.WithValue(ctx, mannerKey{}, polite)
}

// IsPolite tells whether they are marked so.
func IsPolite(ctx context.Context) bool { return ctx.Value(mannerKey{}) == polite }

// Urgently marks the requests with this context as those that somebody waits for, at the cost of what others of
// the API server wait for; see Adaptive.
func Urgently(ctx context.Context) context.Context {
	return context.WithValue(ctx, mannerKey{}, urgent)
}

// IsUrgent tells whether they are marked so.
func IsUrgent(ctx context.Context) bool { return ctx.Value(mannerKey{}) == urgent }
