package datastoremigration

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// copiers makes the copier of a migration, for whatever reads or writes objects of both sides.
type copiers struct {
	cluster

	copies   client.Client
	metadata metadata.Interface
	ending   <-chan struct{}
	metrics  *Metrics
	caches   *caches
}

// caches has what was proved in each migration, so that the next step need not prove
// it again. The zero value is ready for use, from several goroutines.
type caches struct {
	mu sync.Mutex
	by map[string]*migrationCache // by the name of the migration
}

type migrationCache struct {
	of    types.UID
	equal *copier.EqualityCache
	// fence is what was seen of it last, and fenced since when.
	fence  fenceParts
	fenced time.Time
	// closed are the addresses of the API servers that have all refused writes of v1 since then.
	closed string
	since  time.Time
	// verified is since when this process knows that both sides were found equal, at that second.
	verified     time.Time
	verifiedThen int64
	// full: the copies had filled the store, and are not deleted yet.
	full bool
}

// fenceParts are the UIDs of what makes up a fence.
type fenceParts [4]types.UID

// of is that of one migration. One that was created anew under its name has another.
func (l *caches) of(dm *migration) *copier.EqualityCache {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry(dm).equal
}

// fenced tells since when these very parts have been seen to stand: since now at the latest.
func (l *caches) fenced(dm *migration, parts fenceParts, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entry(dm)
	if known.fence != parts {
		known.fence, known.fenced = parts, now
	}
	return known.fenced
}

// closed tells since when these very API servers have refused writes of v1: since now at the latest. It is for a lock
// that has stood all the time.
func (l *caches) closed(dm *migration, servers []apiServer, now time.Time) time.Time {
	addresses := ""
	for _, server := range servers {
		addresses += server.address + " "
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entry(dm)
	if known.closed != addresses {
		known.closed, known.since = addresses, now
	}
	return known.since
}

// opened forgets since when v1 is closed: it is about to be locked, or opened.
func (l *caches) opened(dm *migration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(dm).closed = ""
}

// verified tells since when this process knows the last comparison: since now at the latest.
func (l *caches) verified(dm *migration, at metav1.Time, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entry(dm)
	if then := at.Unix(); known.verifiedThen != then || known.verified.IsZero() {
		known.verified, known.verifiedThen = now, then
	}
	return known.verified
}

// setFull notes that the copies have filled the store, or that they are gone. It is nowhere else: such a store takes no
// note.
func (l *caches) setFull(dm *migration, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(dm).full = full
}

func (l *caches) isFull(dm *migration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry(dm).full
}

// entry is called with mu held.
func (l *caches) entry(dm *migration) *migrationCache {
	if l.by == nil {
		l.by = map[string]*migrationCache{}
	}
	if known, ok := l.by[dm.Name]; !ok || known.of != dm.UID {
		if ok {
			known.equal.Unwatch()
		}
		l.by[dm.Name] = &migrationCache{of: dm.UID, equal: copier.NewEqualityCache()}
	}
	return l.by[dm.Name]
}

// drop forgets a migration that is gone.
func (l *caches) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.by[name]; ok {
		known.equal.Unwatch()
	}
	delete(l.by, name)
}

func (s *copiers) copier(dm *migration) *copier.Copier {
	return s.copierOver(dm, resources.V3Version)
}

// copierOver reaches v3 by a version that its CRDs serve.
func (s *copiers) copierOver(dm *migration, version string, more ...copier.Option) *copier.Copier {
	options := []copier.Option{copier.WithRetried(s.metrics.retried), copier.WithEqualityCache(s.caches.of(dm)), copier.WithWatches(s.metadata, s.ending)}
	if version == migrationv1.SideDoorVersion {
		options = append(options, copier.DeferOwners())
	}
	if isEnforced(dm) {
		options = append(options, copier.UseSnapshot())
	}
	return copier.New(s.registry.Through(version), s.copies, dm.UID, append(options, more...)...)
}
