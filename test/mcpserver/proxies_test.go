package mcpserver

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/test/support/harness"
)

// proxyEdit changes what is started for a proxy pod.
type proxyEdit func(*corev1.Pod, *harness.Program)

// editProxies changes what is started for proxy pods of the test's namespace from
// now on; nil ends it.
func (s *space) editProxies(edit proxyEdit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.edits[s.ns] = edit
}

func (w *world) editProxy(pod *corev1.Pod, program *harness.Program) {
	w.mu.Lock()
	edit := w.edits[pod.Namespace]
	w.mu.Unlock()
	if edit != nil {
		edit(pod, program)
	}
}
