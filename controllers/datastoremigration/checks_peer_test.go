package datastoremigration

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/controllers/check"
)

// Both programs act on v1-to-v3, and only ours on another name.
func TestBothAct(t *testing.T) {
	for name, tt := range map[string]struct {
		name  string
		there bool
		level check.Level
		says  []string
	}{
		"no migration yet":           {level: check.Warning, says: []string{"give the migration another name, to-v3 say"}},
		"one of that name":           {there: true, level: check.Failure, says: []string{"another name", "take its right", "controllers.datastoremigration.enabled=false"}},
		"this one has that name":     {name: "v1-to-v3", there: true, level: check.Failure, says: []string{"another name", "take its right", "controllers.datastoremigration.enabled=false"}},
		"this one has another":       {name: "to-v3", level: check.Warning, says: []string{"it leaves to-v3 alone: create none of that name"}},
		"one of that name beside it": {name: "to-v3", there: true, level: check.Failure, says: []string{"there is one beside to-v3: delete v1-to-v3; or keep that controller away"}},
	} {
		got := bothAct(tt.name, tt.there, "system:serviceaccount:calico-system:calico-kube-controllers")
		for _, part := range append(tt.says, "acts on a DatastoreMigration with the name v1-to-v3, as this program does") {
			if got.Level != tt.level || !strings.Contains(got.String(), part) {
				t.Errorf("%s: %s %q, want %s and %q", name, got.Level, got, tt.level, part)
			}
		}
	}
}
