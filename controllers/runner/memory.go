package runner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory is what fsm.Input.Due of the next pass is, by object: what a look that changes nothing does
// not write. A process that has forgotten it calls at the pace of the file all the same. The zero value is ready.
type memory struct {
	mu  sync.Mutex
	due map[types.NamespacedName]dueOf
}

// dueOf is about one object, and no other that bears its name later.
type dueOf struct {
	uid types.UID
	at  time.Time
}

func (m *memory) of(obj client.Object) *time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if due, known := m.due[client.ObjectKeyFromObject(obj)]; known && due.uid == obj.GetUID() {
		return &due.at
	}
	return nil
}

func (m *memory) keep(obj client.Object, at *time.Time) {
	if at == nil {
		m.drop(client.ObjectKeyFromObject(obj))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.due == nil {
		m.due = map[types.NamespacedName]dueOf{}
	}
	m.due[client.ObjectKeyFromObject(obj)] = dueOf{obj.GetUID(), *at}
}

func (m *memory) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.due, key)
}
