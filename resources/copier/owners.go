package copier

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// ownerMap knows where v1 objects went. A reference names its owner by the raw UID of the v1 object or
// by the bit-reversed one; the map is keyed by the raw one and asked for both.
type ownerMap struct {
	mu sync.RWMutex
	by map[rawUID]ownerTarget
}

type ownerTarget struct {
	kind *resources.Kind
	name string
	uid  types.UID
}

func newOwnerMap() *ownerMap { return &ownerMap{by: map[rawUID]ownerTarget{}} }

// record says that the v1 object v1UID is in v3. The error says that what was found there is the v1 object
// itself, shown by the aggregated API server: to take it for a copy would lose it in the end.
func (m *ownerMap) record(v1 rawUID, kind *resources.Kind, name string, v3 *entry) error {
	if resources.IsMirror(v1, v3.id) {
		return fmt.Errorf("%s %s in v3 is its v1 object, shown by an aggregated API server: APIService %s must point to the CRDs",
			kind.Name(), name, resources.V3Version+"."+resources.V3Group)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[v1] = ownerTarget{kind: kind, name: name, uid: v3.uid}
	return nil
}

// resolve rewrites references to Calico objects to their v3 owners. Those whose owner is not known come
// back as they are.
func (m *ownerMap) resolve(refs []metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, ref := range refs {
		target, ok := m.find(ref.UID)
		if !ok {
			unknown = append(unknown, ref)
			continue
		}
		// v3's own version, whichever the requests go through: it is there for ever.
		ref.APIVersion, ref.Kind = resources.V3Group+"/"+resources.V3Version, target.kind.Name()
		ref.Name, ref.UID = target.name, target.uid
		resolved = append(resolved, ref)
	}
	return resolved, unknown
}

func (m *ownerMap) find(uid types.UID) (ownerTarget, bool) {
	id, err := resources.ParseUID(uid)
	if err != nil {
		return ownerTarget{}, false // no UUID: no object of ours
	}
	target, ok := m.by[id]
	if !ok {
		target, ok = m.by[resources.Reversed(id)]
	}
	return target, ok
}
