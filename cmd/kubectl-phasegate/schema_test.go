package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1/schema"
)

func TestSchema(t *testing.T) {
	cases := map[string]struct {
		why  string
		args []string
		want outcome
	}{
		"machine":      {"the output is the file and nothing else", []string{"schema", "machine"}, outcome{out: string(schema.Machine)}},
		"registry":     {"the output is the file and nothing else", []string{"schema", "kindregistry"}, outcome{out: string(schema.KindRegistry)}},
		"another kind": {"what there is instead", []string{"schema", "machines"}, outcome{err: "write one of [kindregistry machine]", code: exitUsage}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := perform(t, c.args...)
			if strings.Contains(got.err, c.want.err) {
				got.err = c.want.err
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
	if got := perform(t, "__complete", "schema", ""); !strings.HasPrefix(got.out, "kindregistry\nmachine\n") {
		t.Errorf("completion offers %q", got.out)
	}
}
