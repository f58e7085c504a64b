package mcpserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A new spec may come while EnsureWorkload is what the phase waits for, so that the
// next look goes on with it and passes CheckSpec by.
func TestNothingIsMadeForASpecThatCannotBeUsed(t *testing.T) {
	w := newWorld(t, httpServer)
	w.ensure()
	before := w.deployment()
	w.edit(w.srv, `{"spec":{"image":"example.org/fetch:2","oidcConfigRef":{"name":"a","audience":"b"}}}`)
	w.writes = 0
	_, err := do(t.Context(), w.client, w.srv, "CheckSpec")
	reason, says := terminal(err)
	if reason != "NotEnforced" {
		t.Errorf("CheckSpec: %v, want NotEnforced", err)
	}
	for _, step := range []string{"EnsureWorkload", "ObserveWorkload"} {
		_, err := do(t.Context(), w.client, w.srv, step)
		if also, told := terminal(err); also != reason || told != says {
			t.Errorf("%s is stopped by %v, want what CheckSpec says: %s", step, err, says)
		}
	}
	if diff := cmp.Diff(before, w.deployment()); w.writes > 0 || diff != "" {
		t.Errorf("%d writes; a server that asks for protection is not rolled out without it (-before +after):\n%s", w.writes, diff)
	}
}
