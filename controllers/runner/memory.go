package runner

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory is what a process knows of objects besides what is stored; one that has forgotten it does the same, only
// sooner. The zero value is ready.
type memory[V any] struct {
	mu  sync.Mutex
	all map[types.NamespacedName]known[V]
}

// known is about one object, and no other that bears its name later.
type known[V any] struct {
	uid   types.UID
	value *V
}

// of is nil where nothing is known.
func (m *memory[V]) of(obj client.Object) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.all[client.ObjectKeyFromObject(obj)]; k.uid == obj.GetUID() {
		return k.value
	}
	return nil
}

// keep forgets the object if value is nil.
func (m *memory[V]) keep(obj client.Object, value *V) {
	key := client.ObjectKeyFromObject(obj)
	if value == nil {
		m.drop(key)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[types.NamespacedName]known[V]{}
	}
	m.all[key] = known[V]{obj.GetUID(), value}
}

func (m *memory[V]) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}
