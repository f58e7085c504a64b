package runner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Busy keeps two passes apart that are about one object: one over the object, and one over
// what it has left when it is gone. The zero value is ready; a nil one keeps nothing apart.
type Busy struct {
	// Manager names the installation that this process belongs to, as the lease that its processes share: a state
	// says which one drives its object. Empty: it claims nothing.
	Manager string

	mu  sync.Mutex
	now map[types.UID]bool
	// claims are the objects that this installation has driven; one that another has taken over is left to it until
	// then.
	claims map[types.UID]time.Time
}

// take is false while another pass is about the object.
func (b *Busy) take(uid types.UID) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now[uid] {
		return false
	}
	if b.now == nil {
		b.now = map[types.UID]bool{}
	}
	b.now[uid] = true
	return true
}

func (b *Busy) release(uid types.UID) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.now, uid)
}
