package backupstore

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// The name of a migration may be longer than that of a label's value.
func TestBackUpNames(t *testing.T) {
	for name, want := range map[string]string{
		"to-v3":                        "to-v3",
		strings.Repeat("a", 253):       strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		v := &Store{Migration: &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u")}}}
		if got := v.Prefix(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if got := (&Store{Migration: &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3"}}}).name(7); got != "to-v3-v1-backup-7" {
		t.Errorf("got %s, other than the documents say", got)
	}
}
