// Package loadgenerator plays the administrator, or the tool, that goes on writing Calico's v1
// objects while they are migrated: a migration must keep it out as long as v1 is closed,
// and lose nothing that it wrote before.
//
// A Writer keeps a log of what it tried; Watch tells when v1 was closed; Breaches puts
// the two together. All are ordered by etcd's revisions, so that no clock is believed.
package loadgenerator

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

const (
	// ObjectName is the name of the GlobalNetworkSet that a Writer writes, and leaves.
	ObjectName = "background-writer"
	// Label on it is the number of the attempt that wrote it last.
	Label = "background-writer/attempt"
	// patience is how long an attempt waits for its answer.
	patience = 10 * time.Second
)

// Attempt is a write that was tried.
type Attempt struct {
	// N counts from 1; it is the value of Label.
	N int
	// At is when it was sent, Answered when it was known what became of it.
	At, Answered time.Time
	// Accepted attempts are stored under Revision. Of others nobody knows, unless Err
	// is the API server's answer.
	Accepted bool
	Revision uint64
	Err      error
}

// Writer writes until it is stopped.
type Writer struct {
	client client.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu  sync.Mutex
	log []Attempt
}

// Start creates the object, and begins to write it so many times a second, one attempt
// after the other. The caller stops it.
func Start(ctx context.Context, config *rest.Config, rate int) (*Writer, error) {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make the client of the background writer: %w", err)
	}
	obj := object()
	obj.Object["spec"] = map[string]any{"nets": []any{"192.0.2.0/24"}}
	if err := c.Create(ctx, obj); err != nil && !apierrs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create what the background writer writes: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Writer{client: c, cancel: cancel, done: make(chan struct{})}
	go w.run(running, time.NewTicker(time.Second/time.Duration(rate)))
	return w, nil
}

// Stop ends the writing and answers the log, in order. It may be called twice.
func (w *Writer) Stop() []Attempt {
	w.cancel()
	<-w.done
	return w.Log()
}

// Log is what was tried so far, in order.
func (w *Writer) Log() []Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Attempt(nil), w.log...)
}

func (w *Writer) run(ctx context.Context, ticker *time.Ticker) {
	defer close(w.done)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		attempt := w.try(n)
		w.mu.Lock()
		w.log = append(w.log, attempt)
		w.mu.Unlock()
	}
}

// try is not cut off when the writer is stopped: its answer would be lost.
func (w *Writer) try(n int) Attempt {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := Attempt{N: n, At: time.Now()}
	obj := object()
	a.Err = w.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, Label, n)))
	a.Answered = time.Now()
	if a.Err == nil {
		a.Accepted = true
		a.Revision, a.Err = strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	}
	return a
}

func object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetAPIVersion(resources.V1Group + "/" + resources.V1Version)
	obj.SetKind("GlobalNetworkSet")
	obj.SetName(ObjectName)
	return obj
}
