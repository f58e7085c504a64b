package main

import (
	"strings"
	"testing"
	"time"
)

// What ToolHive's proxy runs with, ours runs with, too: a pod that ended for it would start again for ever.
func TestBadTimeoutEndsNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TOOLHIVE_PROXY_REQUEST_TIMEOUT", "120")
	run := command()
	run.SetArgs([]string{"run", "example.org/fetch:1"})
	if err := run.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no run configuration") {
		t.Errorf("error = %v, want that what is read next is not there", err)
	}
}

func TestTimeout(t *testing.T) {
	for text, test := range map[string]struct {
		why, warning string
		want         time.Duration
	}{
		"":    {"nothing is said", "", 0},
		"90s": {"it is what it says", "", 90 * time.Second},
		"120": {"a unit is missing", `TOOLHIVE_PROXY_REQUEST_TIMEOUT="120" is not a duration such as 90s: the default is taken`, 0},
		"-1s": {"no server answers before it is asked", `TOOLHIVE_PROXY_REQUEST_TIMEOUT="-1s" is not a duration such as 90s: the default is taken`, 0},
	} {
		if got, said := timeout(text); got != test.want || said != test.warning {
			t.Errorf("%q: %s, %q; want %s, %q: %s", text, got, said, test.want, test.warning, test.why)
		}
	}
}
