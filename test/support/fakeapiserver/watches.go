package fakeapiserver

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// watches are those that are open, by kind. The zero value is ready.
type watches struct {
	mu   sync.Mutex
	open map[string]running
}

// running is a context that the watches of a kind share, and what ends it.
type running struct {
	context.Context
	stop context.CancelFunc
}

// begin returns a context that ends with the client's, or when end is called.
func (w *watches) begin(client context.Context, kind string) (context.Context, context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[string]running{}
	}
	shared, ok := w.open[kind]
	if !ok {
		shared.Context, shared.stop = context.WithCancel(context.Background())
		w.open[kind] = shared
	}
	ctx, cancel := context.WithCancel(client)
	stop := context.AfterFunc(shared, cancel)
	return ctx, func() { stop(); cancel() }
}

// end ends the watches of some kinds, of all where none is named.
func (w *watches) end(kinds []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(kinds) == 0 {
		kinds = slices.Collect(maps.Keys(w.open))
	}
	for _, kind := range kinds {
		if shared, ok := w.open[kind]; ok {
			shared.stop()
			delete(w.open, kind)
		}
	}
}
