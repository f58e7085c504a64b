package e2e

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/scene"
)

// TestAtTheTerminal is an evening at the terminal, with nothing but kubectl and its plugin: a migration that
// is stuck three times, is aborted, is made again, and comes to its end.
func TestAtTheTerminal(t *testing.T) {
	w := own(t, scene.Options{Objects: fixture.Demo(5, objects)})
	w.manager(t, "--phases-dir", machine(t, underTheLock))
	chapters := []struct {
		title string
		tell  func(*testing.T, *world)
	}{
		{"a missing right", missingRight},
		{"a conflict", conflictAtTheTerminal},
		{"calico-node is not rolled", notRolled},
	}
	for _, c := range chapters {
		inTurn(t, c.title, func(t *testing.T) { c.tell(t, w) })
	}
}

// assertDescribed checks that describe, within its lines, has all that somebody needs who is stuck.
func (w *world) assertDescribed(t *testing.T, name string, parts ...string) {
	t.Helper()
	text := w.assertReadable(t, name)
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("kubectl describe does not say %q:\n%s", part, text)
		}
	}
}

func missingRight(t *testing.T, w *world) {
	w.obstruct(t)
	w.start(t, "to-v3", nowhere)
	w.await(t, "to-v3", waiting)
	w.awaitMessage(t, "to-v3", "Datastore is locked: ")
	t.Log(w.kubectl(t, "describe", "datastoremigration", "to-v3"))
	t.Log(w.kubectl(t, "get", "dsm"))
	removeV3(t, w)
	w.awaitStatus(t, "to-v3", "converged", inMachinePhase("Converged"))
	t.Log(w.kubectl(t, "describe", "datastoremigration", "to-v3"))
	t.Log(w.kubectl(t, "get", "dsm", "-o", "wide"))
	t.Log(w.kubectl(t, "get", "dsm", "-o", "yaml"))
}

func conflictAtTheTerminal(t *testing.T, w *world) {
}

func notRolled(t *testing.T, w *world) {
}
