package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Numbers are read by scripts.
func TestIntegersStayWhole(t *testing.T) {
	for value, why := range map[int64]string{1000000: "a million objects", 1748779200123456789: "as large as a sequence number of IPAM"} {
		cmd := &cobra.Command{}
		out := outputFlags(cmd, "table")
		if err := cmd.Flags().Set("output", "jsonpath={.objects}"); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		err := display(&b, out, shown[map[string]int64]{kind: "Plan", of: schema.GroupVersionKind{Kind: "Plan"}, value: map[string]int64{"objects": value}})
		if err != nil || b.String() != strconv.FormatInt(value, 10) {
			t.Errorf("%s: printed %q, error %v", why, b.String(), err)
		}
	}
}
