package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/internal/release"
)

func TestVersion(t *testing.T) {
	if diff := cmp.Diff(outcome{out: version + "\n"}, perform(t, "version"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("one line, which scripts may read (-want +got):\n%s", diff)
	}

	got := perform(t, "version", "-o", "json")
	var info release.Info
	if err := json.Unmarshal([]byte(got.out), &info); err != nil {
		t.Fatalf("version -o json printed %+v: %v", got, err)
	}
	if diff := cmp.Diff(release.Current(), info); diff != "" {
		t.Errorf("a bug report says which program it was (-want +got):\n%s", diff)
	}

	wrong := perform(t, "version", "-o", "yaml")
	want := outcome{err: "kubectl-phasegate: -o \"yaml\": write text or json\n", code: exitUsage}
	if diff := cmp.Diff(want, wrong, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("a format that is not there (-want +got):\n%s", diff)
	}
}
