package standin

import (
	"context"
	"sync"
)

// watches are those that are open. The zero value is ready.
type watches struct {
	mu      sync.Mutex
	running context.Context
	stop    context.CancelFunc
}

// begin returns a context that ends with the client's, or when end is called.
func (w *watches) begin(client context.Context) (context.Context, context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		w.running, w.stop = context.WithCancel(context.Background())
	}
	ctx, cancel := context.WithCancel(client)
	stop := context.AfterFunc(w.running, cancel)
	return ctx, func() { stop(); cancel() }
}

func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
		w.running = nil
	}
}
