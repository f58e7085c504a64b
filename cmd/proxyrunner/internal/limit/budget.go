package limit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/rpcerror"
)

// Total is how many bytes the requests of all clients together may hold, and how
// many the answers.
const Total = 64 << 20

// firstRead is what a body takes at first; it doubles as the body arrives.
const firstRead = 4 << 10

// busyRetry is when a client may try again that was refused for want of room.
const busyRetry = 2 * time.Second

// MaxBody is how many bytes a request may have at most, whatever is asked for: while it
// grows, it takes nearly twice as much.
const MaxBody = 24 << 20

// Budget is a number of bytes that many share.
type Budget struct {
	left atomic.Int64
	// body is how many of them one request may take.
	body int
}

// NewBudget makes one of that many bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{body: rpcerror.MaxBody}
	b.left.Store(bytes)
	return b
}

// Bound makes n the number of bytes that one request may have; 0 leaves it as it is. It is
// called before the budget is used.
func (b *Budget) Bound(n int64) *Budget {
	if n > 0 {
		b.body = int(min(n, MaxBody))
	}
	return b
}

// Take takes n bytes, or none and returns false.
func (b *Budget) Take(n int) bool {
	if b.left.Add(-int64(n)) < 0 {
		b.left.Add(int64(n))
		return false
	}
	return true
}

// Give returns n bytes that were taken.
func (b *Budget) Give(n int) { b.left.Add(int64(n)) }

// Left is how many bytes are free.
func (b *Budget) Left() int64 { return b.left.Load() }

// Body reads the body of a request into memory that it takes from the budget as
// the bytes arrive, so that a header alone takes none. free returns it, and may be
// called twice. If the body is too large, too slow, broken off or finds no room,
// the request is answered and ok is false.
func (b *Budget) Body(w http.ResponseWriter, r *http.Request) (body []byte, free func(), ok bool) {
	in := http.MaxBytesReader(w, r.Body, int64(b.body))
	body, err := b.read(in, b.sizeOf(r))
	if err != nil {
		b.refuse(w, err)
		return nil, nil, false
	}
	taken := cap(body)
	var freed atomic.Bool
	return body, func() {
		if !freed.Swap(true) {
			b.Give(taken)
		}
	}, true
}

// sizeOf is how much room the whole body needs at most, with a byte in which to
// meet its end.
func (b *Budget) sizeOf(r *http.Request) int {
	if r.ContentLength >= 0 && r.ContentLength < int64(b.body) {
		return int(r.ContentLength) + 1
	}
	return b.body + 1
}

var errNoRoom = errors.New("the proxy holds as many requests as it can")

// read is io.ReadAll within the budget. On success the capacity of what it returns
// is taken.
func (b *Budget) read(in io.Reader, most int) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			grown := max(firstRead, 2*cap(body))
			if cap(body) < most {
				grown = min(grown, most)
			}
			if !b.Take(grown) {
				b.Give(cap(body))
				return nil, errNoRoom
			}
			old := body
			body = append(make([]byte, 0, grown), old...)
			b.Give(cap(old))
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			b.Give(cap(body))
			return nil, err
		}
	}
}

func (b *Budget) refuse(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	var slow interface{ Timeout() bool }
	// What is left of the body is not read: the connection is not used again.
	w.Header().Set("Connection", "close")
	switch {
	case errors.Is(err, errNoRoom):
		rpcerror.WriteRetry(w, http.StatusServiceUnavailable, nil, err.Error()+": try again", busyRetry)
	case errors.As(err, &tooLarge):
		rpcerror.Write(w, http.StatusRequestEntityTooLarge, nil,
			fmt.Sprintf("the request is larger than %d bytes, which is all that the proxy passes on", b.body))
	case errors.As(err, &slow) && slow.Timeout():
		rpcerror.Write(w, http.StatusRequestTimeout, nil, "the request did not arrive in time")
	default:
		rpcerror.Write(w, http.StatusBadRequest, nil, fmt.Sprintf("read the request: %v", err))
	}
}
