package copier

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// EqualityCache is what Copiers of one migration remember from one to the next. It remembers of which v1 objects it is
// proved that v3 holds the same, so that nobody has to read them again: as long as neither object has another
// resourceVersion, nothing has changed. It is in memory only, some hundred bytes for each object. What it has
// forgotten is compared in full, so that nothing but time depends on it. Safe for concurrent use.
type EqualityCache struct {
	schemas   schemaCache
	snapshots snapshots
	watched   watchedKinds
	// forgetful: nothing that was proved is kept.
	forgetful bool
	mu        sync.Mutex
	proved    map[string]*proofs // by the v3 kind, as the others
}

// NewEqualityCache returns an EqualityCache that knows nothing.
func NewEqualityCache() *EqualityCache {
	return &EqualityCache{proved: map[string]*proofs{}, watched: watchedKinds{by: map[string]*watchedKind{}},
		snapshots: snapshots{moments: map[string]moment{}, lists: map[string][]*v1Object{}}}
}

// Unwatch ends all watches. It may be called again.
func (l *EqualityCache) Unwatch() { l.watched.end() }

// of is what is proved of a kind, under this very schema: another one may see other differences.
func (l *EqualityCache) of(kind *resources.Kind, schema *resources.Schema) *proofs {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.proved[kind.Name()]; known != nil && known.schema == schema {
		return known
	}
	return newProofs(schema)
}

// keep replaces what is proved of a kind by what a look at all of its objects has added to.
func (l *EqualityCache) keep(kind *resources.Kind, proved *proofs) {
	if l.forgetful {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proved[kind.Name()] = proved
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

// idOf is zero for a UID that is no UUID. Of zero nothing is proved.
func idOf(uid types.UID) rawUID {
	id, _ := resources.ParseUID(uid)
	return id
}

// proof says that two objects, as they were in these versions, were found equal in all but the owners in
// Calico.
type proof struct {
	v1Version uint64
	v3        rawUID
	v3Version uint64
	digest    digest // of the v1 object, see v1Digest
}

// holds says that neither object has changed since.
func (p proof) holds(v1Version uint64, live *entry) bool {
	return live != nil && p.v1Version == v1Version && p.v3 == live.id && p.v3Version == live.version
}

func newProofs(schema *resources.Schema) *proofs {
	return &proofs{schema: schema, v3: -1, by: map[rawUID]proof{}}
}

// next is what the next look adds to: these, unless most of them are of objects that are gone.
func (p *proofs) next() *proofs {
	if proved, v3 := p.sizes(); int64(proved) > 2*v3+1000 {
		return newProofs(p.schema)
	}
	return p
}

// saw notes how many objects v3 has now.
func (p *proofs) saw(v3 int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.v3 = v3
}

// sizes are how many proofs there are, and how many objects v3 had.
func (p *proofs) sizes() (proved int, v3 int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.by), p.v3
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
	of, found := idOf(conv.V1UID), proof{v1Version: parseVersion(conv.V1Version), v3: idOf(v3), v3Version: version, digest: v1}
	if of != (rawUID{}) && found.v3 != (rawUID{}) && found.v1Version != 0 && found.v3Version != 0 {
		p.add(of, found)
	}
}

// parseVersion is 0 for a resourceVersion that is no number.
func parseVersion(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}
