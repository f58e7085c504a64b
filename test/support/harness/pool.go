package harness

import (
	"errors"
	"sync"
	"testing"
)

// Pool lends what takes long to make, such as a cluster, to tests that leave it as it was, to one at a time. As many are
// made as tests run side by side. Both fields are set before the first Lend.
type Pool[T any] struct {
	New func(testing.TB) T
	End func(T) error

	mu   sync.Mutex
	idle []T
}

// Lend lends one until the test ends, and what the test has registered after it is done. A test that fails takes its own
// with it.
func (p *Pool[T]) Lend(t testing.TB) T {
	t.Helper()
	one, found := p.take()
	if !found {
		one = p.New(t)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if err := p.End(one); err != nil {
				t.Log(err)
			}
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, one)
	})
	return one
}

func (p *Pool[T]) take() (one T, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return one, false
	}
	one, p.idle = p.idle[last], p.idle[:last]
	return one, true
}

// Close ends all that are not lent.
func (p *Pool[T]) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, one := range p.idle {
		errs = append(errs, p.End(one))
	}
	p.idle = nil
	return errors.Join(errs...)
}
