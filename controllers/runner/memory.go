package runner

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory is what a process knows of objects besides what is stored; one that has forgotten it does the same, only
// sooner. The zero value is ready.
type memory[V any] struct{ all sync.Map } // known[V] by types.NamespacedName

// known is about one object, and no other that bears its name later.
type known[V any] struct {
	uid   types.UID
	value *V
}

// of is nil where nothing is known.
func (m *memory[V]) of(obj client.Object) *V {
	if k, found := m.all.Load(client.ObjectKeyFromObject(obj)); found && k.(known[V]).uid == obj.GetUID() {
		return k.(known[V]).value
	}
	return nil
}

// keep forgets the object if value is nil.
func (m *memory[V]) keep(obj client.Object, value *V) {
	if value == nil {
		m.drop(client.ObjectKeyFromObject(obj))
		return
	}
	m.all.Store(client.ObjectKeyFromObject(obj), known[V]{obj.GetUID(), value})
}

func (m *memory[V]) drop(key types.NamespacedName) { m.all.Delete(key) }
