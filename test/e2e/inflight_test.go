package e2e

import (
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A manager that may send one request at a time is slow. It must not be stuck: none
// of its requests may hold its turn while it waits for another one.
func TestOneRequestAtATime(t *testing.T) {
	cases := map[string]struct{ why, flag string }{
		"of all":             {why: "one more would queue where nobody sees it", flag: "--max-requests-in-flight=1"},
		"of the copy, ahead": {why: "others come first", flag: "--polite"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Log(c.why)
			w := pristine(t)
			before := w.content(t)
			w.manager(t, "--phases-dir", gated(t), c.flag)
			w.start(t, setup.MigrationName, "verified")
			// Politeness is ten pauses for each answer, so that it takes the longer, the busier the machine is.
			if _, err := w.AwaitPhase(t.Context(), setup.MigrationName, "Migrating", 2*harness.Patience); err != nil {
				t.Fatal(err)
			}
			w.awaitGate(t, setup.MigrationName, "verified")
			assertSameContent(t, before, w.content(t))
			w.remove(t, setup.MigrationName)
		})
	}
}
