package diag

import (
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// NameIn is metadata.name of a file that Decode refuses, as far as the lines before its first
// mistake tell; empty where they do not.
func NameIn(data []byte) string {
	if len(data) > MaxFileSize {
		return ""
	}
	var head struct{ Metadata v1alpha1.FileMeta }
	s := &Source{lines: strings.Split(string(data), "\n")}
	if err := yamlv3.Unmarshal(data, &head); err != nil && head.Metadata.Name == "" {
		before := strings.Join(s.lines[:max(0, s.brokenLine(err)-1)], "\n")
		_ = yamlv3.Unmarshal([]byte(before), &head) // what it does not tell stays empty
	}
	return head.Metadata.Name
}
