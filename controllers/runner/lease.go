package runner

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// holders are the managers of other installations whose objects were met. The zero value is ready.
type holders struct {
	mu  sync.Mutex
	all map[string]holder
}

// holder is what was seen of the lease of another installation.
type holder struct {
	// version of the lease, and since when it is that.
	version string
	since   time.Time
	asked   time.Time
	// renewed: it was another one before, so that somebody is there. gone: nobody is.
	renewed, gone bool
	// lasts is how long it must not change for nobody to be there.
	lasts time.Duration
}

// look is what is known after a look at the lease; nil is none.
func (h holder) look(lease *coordinationv1.Lease, now time.Time) holder {
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return holder{asked: now, gone: true}
	}
	if lease.ResourceVersion != h.version {
		h = holder{version: lease.ResourceVersion, since: now, renewed: h.version != "" || h.renewed}
	}
	h.asked, h.lasts = now, patience*time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 15))*time.Second
	h.gone = now.Sub(h.since) >= h.lasts
	return h
}

// again is how soon it is worth while to look again.
func (h holder) again() time.Duration {
	if h.renewed {
		return asideFor
	}
	return max(h.lasts, askHolder)
}

const (
	// asideFor is how long an installation leaves an object alone that another one drives.
	asideFor = 5 * time.Minute
	// askHolder is how long an answer about a lease is used: many objects have the same holder.
	askHolder = 10 * time.Second
	// patience is how often the duration of a lease nobody renews it until its holder is gone. No clock is compared with
	// another one.
	patience = 2
)
