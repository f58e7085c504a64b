package copier

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// ownerMap knows where v1 objects went. A reference names its owner by the raw UID of the v1 object or
// by the bit-reversed one; the map is keyed by the raw one and asked for both.
type ownerMap struct {
	mu sync.RWMutex
	by map[types.UID]ownerTarget
}

type ownerTarget struct {
	kind *resources.Kind
	name string
	uid  types.UID
}

func newOwnerMap() *ownerMap { return &ownerMap{by: map[types.UID]ownerTarget{}} }

// record says that the v1 object v1UID is in v3.
func (m *ownerMap) record(v1UID types.UID, kind *resources.Kind, name string, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[v1UID] = ownerTarget{kind: kind, name: name, uid: uid}
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
		gvk := target.kind.V3GVK()
		ref.APIVersion, ref.Kind = gvk.GroupVersion().String(), gvk.Kind
		ref.Name, ref.UID = target.name, target.uid
		resolved = append(resolved, ref)
	}
	return resolved, unknown
}

func (m *ownerMap) find(uid types.UID) (ownerTarget, bool) {
	if target, ok := m.by[uid]; ok {
		return target, true
	}
	raw, err := resources.ReverseUID(uid)
	if err != nil {
		return ownerTarget{}, false // no UUID: no object of ours
	}
	target, ok := m.by[raw]
	return target, ok
}
