package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A log is in the order of answers, and has the requests of all users.
func TestCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := `{"verb":"create","user":{"username":"us"},"objectRef":{"resource":"tiers","subresource":"status","name":"a","apiGroup":"g"},"requestReceivedTimestamp":"2026-01-01T00:00:02Z","stageTimestamp":"2026-01-01T00:00:03Z"}
{"verb":"get","user":{"username":"us"},"requestURI":"/version","requestReceivedTimestamp":"2026-01-01T00:00:01Z","stageTimestamp":"2026-01-01T00:00:04Z"}
{"verb":"watch","user":{"username":"us"},"objectRef":{"resource":"tiers"},"requestReceivedTimestamp":"2026-01-01T00:00:01Z","stageTimestamp":"2026-01-01T00:00:09Z"}
{"verb":"get","user":{"username":"them"},"requestURI":"/version","requestReceivedTimestamp":"2026-01-01T00:00:01Z","stageTimestamp":"2026-01-01T00:00:09Z"}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	want := []Call{
		{Verb: "get", Resource: "/version", From: at(1), To: at(4)},
		{Verb: "create", Resource: "tiers.g/status", Name: "a", From: at(2), To: at(3)},
	}
	got, err := Calls(path, "us")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
