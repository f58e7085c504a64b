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

	// now are the objects that a pass is about.
	now sync.Map

	mu sync.Mutex
	// claims are the objects that this installation has driven; one that another has taken over is left to it until
	// then.
	claims map[types.UID]time.Time
}

// take is false while another pass is about the object.
func (b *Busy) take(uid types.UID) bool {
	if b == nil {
		return true
	}
	_, taken := b.now.LoadOrStore(uid, true)
	return !taken
}

func (b *Busy) release(uid types.UID) {
	if b != nil {
		b.now.Delete(uid)
	}
}
