package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/loadgenerator"
)

const (
	// lockName is the ClusterInformation that is the lock.
	lockName = "default"
	// writes is how often somebody writes v1 until it is locked, each second.
	writes = 20
	// look is how long v3 is left alone between two questions whether it is open, once v1 is closed; and
	// lookPart the part of the time so far, if that is longer: 50 questions a second all the time would be some
	// 4 % of the CPU of a lock that lasts as long as a copy.
	look, lookPart = 20 * time.Millisecond, 100
)

// closure is how long nobody could use Calico's datastore, as its clients see it.
type closure struct {
	closed, opened time.Time
	// wrote is how often the bystander wrote, or tried to.
	wrote int
}

func (c closure) locked() time.Duration { return c.opened.Sub(c.closed) }

// bystander writes v1 until it is locked, and sees when that is and when v3 opens. Its
// writes belong to the scene: they are what a migration must not lose.
type bystander struct {
	v1, v3 dynamic.ResourceInterface // the locks
	writer *loadgenerator.Writer
	watch  watch.Interface
}

// watchLock begins to write and to watch. The caller calls sees.
func watchLock(ctx context.Context, config *rest.Config, registry *resources.Registry) (*bystander, error) {
	client, err := dynamic.NewForConfig(rest.CopyConfig(config)) // a connection of its own
	if err != nil {
		return nil, err
	}
	lock := registry.Lock()
	b := &bystander{
		v1: client.Resource(lock.V1GVR()),
		v3: client.Resource(lock.V3GVR()),
	}
	if b.watch, err = b.v1.Watch(ctx, metav1.ListOptions{}); err != nil {
		return nil, fmt.Errorf("watch v1's lock: %w", err)
	}
	if b.writer, err = loadgenerator.Start(ctx, config, writes); err != nil {
		b.watch.Stop()
		return nil, err
	}
	return b, nil
}

// sees answers when v1 was closed and when v3 was opened, or the end of ctx.
func (b *bystander) sees(ctx context.Context) (c closure, err error) {
	defer b.watch.Stop()
	c.closed, err = b.awaitClosed(ctx)
	log := b.writer.Stop()
	c.wrote = 1 + len(log) // it creates what it writes
	for _, a := range log {
		if !a.Accepted && a.At.Before(c.closed) {
			c.closed = a.At // refused before it was told
		}
	}
	if err != nil {
		return c, err
	}
	c.opened, err = b.awaitOpened(ctx)
	return c, err
}

func (b *bystander) awaitClosed(ctx context.Context) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case event, open := <-b.watch.ResultChan():
			if !open {
				return time.Time{}, errors.New("the watch of v1's lock has ended")
			}
			info, is := event.Object.(*unstructured.Unstructured)
			if is && event.Type != watch.Deleted && !isReady(info) {
				return time.Now(), nil
			}
		}
	}
}

// awaitOpened asks again and again: no watch lives through the change from the
// aggregated API server to the CRDs.
func (b *bystander) awaitOpened(ctx context.Context) (time.Time, error) {
	began := time.Now()
	for closed := false; ; {
		info, err := b.v3.Get(ctx, lockName, metav1.GetOptions{})
		open := err == nil && isReady(info)
		if closed && open {
			return time.Now(), nil
		}
		closed = closed || !open
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(max(look, time.Since(began)/lookPart)):
		}
	}
}

func isReady(info *unstructured.Unstructured) bool {
	ready, _, _ := unstructured.NestedBool(info.Object, "spec", "datastoreReady")
	return ready
}
