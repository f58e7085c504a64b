// Package describe holds what kubectl describe prints of our objects to what people read.
// It needs no cluster; test/e2e counts the lines of the real kubectl.
package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// describeLimit is how many lines people read.
const describeLimit = 60

// serverLimit leaves room for the conditions that ToolHive has on every server: three, of six lines each.
const serverLimit = describeLimit + 18

// described are the lines that kubectl describe prints of a custom resource with so many
// Events: a line for each field and for each text of a list. It follows
// printUnstructuredContent of k8s.io/kubectl, which is not a dependency for this alone.
func described(t *testing.T, o any, events int) []string {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		t.Fatal(err)
	}
	metadata := content["metadata"].(map[string]any)
	lines := []string{"Name:", "Namespace:"}
	for _, key := range []string{"labels", "annotations"} { // one line each, and one for each further entry
		all, _ := metadata[key].(map[string]any)
		for range max(1, len(all)) {
			lines = append(lines, key)
		}
	}
	lines = append(lines, "API Version:", "Kind:")
	for _, key := range []string{"name", "namespace", "labels", "annotations", "managedFields"} {
		delete(metadata, key)
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	lines = append(append(lines, contentLines(content)...), "Events:")
	if events > 0 {
		lines = append(lines, "Type Reason", "---- ------")
	}
	for range events {
		lines = append(lines, "an event")
	}
	return lines
}

func contentLines(content map[string]any) (lines []string) {
	text := func(label string, value any) {
		lines = append(lines, strings.Split(fmt.Sprintf("%s %v", label, value), "\n")...)
	}
	for _, field := range slices.Sorted(maps.Keys(content)) {
		switch value := content[field].(type) {
		case map[string]any:
			lines = append(append(lines, field+":"), contentLines(value)...)
		case []any:
			lines = append(lines, field+":")
			for _, child := range value {
				if fields, ok := child.(map[string]any); ok {
					lines = append(lines, contentLines(fields)...)
				} else {
					text("", child)
				}
			}
		default:
			text(field, value)
		}
	}
	return lines
}

// assertFits checks that describe prints an object within the limit.
func assertFits(t *testing.T, o any, events, limit int) {
	t.Helper()
	lines := described(t, o, events)
	t.Logf("kubectl describe prints %d lines", len(lines))
	if len(lines) > limit {
		t.Errorf("kubectl describe prints %d lines, more than %d:\n%s", len(lines), limit, strings.Join(lines, "\n"))
	}
}
