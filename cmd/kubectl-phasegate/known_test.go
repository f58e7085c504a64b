package main

import (
	"os"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
)

// ofNextVersion is the shipped machine with a field that this program does not know.
func ofNextVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../phases/datastore-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), "\n  initial:", "\n  ofTheNextVersion: true\n  initial:", 1)
	if newer == string(text) {
		t.Fatal("nothing was replaced")
	}
	return newer
}

// A machine that nobody can read here is an error only where there is no other one of its name.
func TestPublishedThatCannotBeRead(t *testing.T) {
	published := func(name, text string) []definitions.Published {
		return []definitions.Published{{Machine: name, Manager: "m/m", Revision: "sha256:newer", Text: text,
			For: v1alpha1.ObjectKind{APIVersion: migrationKind.GroupVersion().String(), Kind: migrationKind.Kind}}}
	}
	for name, tc := range map[string]struct {
		why      string
		machine  string
		compiled bool
		want     string
	}{
		"compiled in": {why: "what it shows is as good as without a manager", machine: shipped, compiled: true, want: shipped},
		"somebody's":  {why: "there is nothing to tell it by", machine: "custom", compiled: true},
		"that of -f":  {why: "a file that was given is not taken for another", machine: shipped},
	} {
		t.Run(name, func(t *testing.T) {
			all := candidates(published(tc.machine, ofNextVersion(t)), compiledIn(), tc.compiled)
			var said []string
			all[0].warn = func(machine string, why error) { said = append(said, machine+": "+why.Error()) }
			m, err := all[0].machine(live.Object{})
			if tc.want == "" {
				if err == nil || len(said) > 0 {
					t.Errorf("%s: got %v, said %v", tc.why, m, said)
				}
				return
			}
			if err != nil || m.Name() != tc.want || len(said) != 1 || strings.Contains(said[0], "\n") || !strings.Contains(said[0], "ofTheNextVersion") {
				t.Errorf("%s: error %v, said %q", tc.why, err, said)
			}
		})
	}
}
