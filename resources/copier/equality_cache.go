package copier

import (
	"context"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// EqualityCache remembers of which v1 objects it is proved that v3 holds the same, so that nobody has to read
// them again: as long as neither object has another resourceVersion, nothing has changed. It is in memory
// only, some hundred bytes for each object. What it has forgotten is compared in full, so that nothing but
// time depends on it.
//
// A EqualityCache belongs to one migration. Safe for concurrent use.
type EqualityCache struct {
	schemas schemaCache
	mu      sync.Mutex
	kinds   map[string]*proofs // by the v3 kind, as the others
	moments map[string]moment
	lists   map[string][]*v1Object
	// watched are the kinds that are watched until unfollow is called.
	watched map[string]*watchedKind
	unwatch context.CancelFunc
}

// NewEqualityCache returns an EqualityCache that knows nothing.
func NewEqualityCache() *EqualityCache {
	return &EqualityCache{kinds: map[string]*proofs{}, moments: map[string]moment{}, lists: map[string][]*v1Object{}, watched: map[string]*watchedKind{}}
}

// WithEqualityCache lets a Copier rely on what earlier ones have proved, and write down what it proves itself. With
// nil, as without the option, it compares everything.
func WithEqualityCache(l *EqualityCache) Option {
	return func(c *Copier) {
		if c.cache = l; l != nil {
			c.schemas = &l.schemas
		}
	}
}

// of is what is proved of a kind, under this very schema: another one may see other differences.
func (l *EqualityCache) of(kind *resources.Kind, schema *resources.Schema) *proofs {
	if l == nil {
		return newProofs(schema)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.kinds[kind.Name()]
	if known == nil || known.schema != schema {
		return newProofs(schema)
	}
	return known
}

// keep replaces what is proved of a kind by what a look at all of its objects has proved.
func (l *EqualityCache) keep(kind *resources.Kind, proved *proofs) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds[kind.Name()] = proved
}

// proofs are those of one kind, by the UID of the v1 object.
type proofs struct {
	schema *resources.Schema
	v3     int64 // how many objects v3 had; negative where nobody has looked
	mu     sync.Mutex
	by     map[rawUID]proof
}

// rawUID is a UID, in less than half of the space.
type rawUID [16]byte

// proof says that two objects, as they were in these versions, were found equal in all but the owners in
// Calico.
type proof struct {
	v1Version uint64
	v3        rawUID
	v3Version uint64
	digest    digest // of the v1 object, see v1Digest
}

// holds tells that neither object has changed since.
func (p proof) holds(v1Version string, live entry) bool {
	return p.v1Version == parseVersion(v1Version) && p.v3 == live.id() && p.v3Version == live.version
}

func newProofs(schema *resources.Schema) *proofs {
	return &proofs{schema: schema, v3: -1, by: map[rawUID]proof{}}
}

// of is the proof of one v1 object.
func (p *proofs) of(v1 rawUID) (proof, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.by[v1]
	return found, ok
}

func (p *proofs) add(v1 rawUID, proved proof) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by[v1] = proved
}

// prove notes that a v3 object was found equal to what a v1 object becomes. What cannot be told from other
// objects, or from itself later, is not noted.
func (p *proofs) prove(conv *resources.Converted, v1 digest, v3 types.UID, version uint64) {
	of, badV1 := resources.ParseUID(conv.V1UID)
	found := proof{v1Version: parseVersion(conv.V1Version), v3Version: version, digest: v1}
	var badV3 error
	found.v3, badV3 = resources.ParseUID(v3)
	if badV1 == nil && badV3 == nil && found.v1Version != 0 && found.v3Version != 0 {
		p.add(of, found)
	}
}

// parseVersion is 0 for a resourceVersion that is no number.
func parseVersion(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}
