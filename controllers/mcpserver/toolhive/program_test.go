package toolhive_test

import (
	"testing"

	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

func TestProgramOf(t *testing.T) {
	for name, c := range map[string]struct {
		why, image, said, want string
	}{
		"tag":             {"releases are called so", "ghcr.io/stacklok/toolhive/proxyrunner:v0.63.0", "", "v0.63.0"},
		"tag without v":   {"some mirrors do that", "mirror.example:5000/thv:0.64.1", "", "v0.64.1"},
		"tag and digest":  {"whoever wrote both knew", "thv:v0.63.0@sha256:abc", "", "v0.63.0"},
		"candidate":       {"it is older than its release", "thv:v0.63.0-rc.1", "", "v0.63.0-rc.1"},
		"port, no tag":    {"a port is none", "mirror.example:5000/thv", "", "unknown"},
		"latest":          {"it may be any", "thv:latest", "", "unknown"},
		"mirror's number": {"it is no version", "thv:1", "", "unknown"},
		"digest":          {"it tells nothing", "thv@sha256:abc", "", "unknown"},
		"said":            {"the digest tells nothing", "thv@sha256:abc", "v0.63.0", "v0.63.0"},
		"said otherwise":  {"a mirror counts by itself", "thv:v1.0.0", "v0.44.0", "v0.44.0"},
	} {
		got, err := toolhive.ProgramOf(c.image, c.said)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %s: %v, error %v, want %s", name, c.why, got, err, c.want)
		}
	}
	if _, err := toolhive.ProgramOf("thv:v0.63.0", "new"); err == nil {
		t.Error("said is no version, and is believed")
	}
}
