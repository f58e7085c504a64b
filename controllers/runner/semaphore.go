package runner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// turnWait is how long an object waits for its turn to call outwards before it is looked at again; it is woken as soon as
// it has one.
const turnWait = 30 * time.Second

// semaphore bounds the calls outwards that are under way. An object that finds no turn free waits in line without a worker: a
// turn that becomes free is kept for the first in line, which is woken. Nil bounds nothing.
type semaphore struct {
	mu   sync.Mutex
	free int
	// line are the objects that wait, the first of them first; waiting are the same.
	line    []types.NamespacedName
	waiting map[types.NamespacedName]bool
	// kept are the objects that a turn is kept for, which they have not used yet.
	kept map[types.NamespacedName]bool
	// wake has an object looked at; nil: it is looked at after turnWait.
	wake func(types.NamespacedName)
}

func newSemaphore(n int) *semaphore {
	return &semaphore{free: n, waiting: map[types.NamespacedName]bool{}, kept: map[types.NamespacedName]bool{}}
}

// wakes says how objects are woken, before the first pass.
func (t *semaphore) wakes(wake func(types.NamespacedName)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake = wake
}

// take is false where the object has to wait for its turn; else done must be called after the call.
func (t *semaphore) take(key types.NamespacedName) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.kept[key]:
		delete(t.kept, key)
		return true
	case t.free > 0: // nobody waits then
		t.free--
		return true
	case !t.waiting[key]:
		t.waiting[key] = true
		t.line = append(t.line, key)
	}
	return false
}

// done gives a turn back, to the first that waits for one.
func (t *semaphore) done() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOnLocked()
}

// handOnLocked gives a turn to the first in line.
func (t *semaphore) handOnLocked() {
	if len(t.line) == 0 {
		t.free++
		return
	}
	first := t.line[0]
	t.line = t.line[1:]
	delete(t.waiting, first)
	t.kept[first] = true
	if t.wake != nil {
		t.wake(first)
	}
}

// begins tells, at the beginning of a pass, whether a turn is kept for the object. If so, ended must be called at the end
// of the pass.
func (t *semaphore) begins(key types.NamespacedName) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[key]
}

// ended hands a turn on that was kept for a pass which did not use it: the object is gone, or calls nothing any more.
func (t *semaphore) ended(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept[key] {
		delete(t.kept, key)
		t.handOnLocked()
	}
}
