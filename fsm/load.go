package fsm

import (
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Definition is a machine file that decoded without a finding.
type Definition struct {
	v1alpha1.Machine
	*Source

	// Revision is "sha256:" and a hash of what the file says: comments, layout, metadata but
	// the name, and texts for people do not count.
	Revision string

	text []byte
}

// Text is the file as it was read. Nobody may change it.
func (d *Definition) Text() []byte { return d.text }

// Load decodes a machine file strictly; what it says is checked by Bind. It reads
// nothing but data, and may be called any number of times. The definition is nil
// when there is a finding.
func Load(file string, data []byte) (*Definition, Diagnostics) {
	d := &Definition{text: data}
	var diags Diagnostics
	if d.Source, diags = Decode(file, data, &d.Machine); len(diags) > 0 {
		return nil, diags
	}
	if d.APIVersion != v1alpha1.APIVersion || d.Kind != v1alpha1.KindMachine {
		return nil, Diagnostics{d.Finding("apiVersion", "PG000", fmt.Sprintf("apiVersion %q, kind %q", d.APIVersion, d.Kind),
			fmt.Sprintf("write apiVersion: %s and kind: %s", v1alpha1.APIVersion, v1alpha1.KindMachine))}
	}
	d.Revision = revisionOf(d.Machine)
	return d, nil
}

// NameIn is metadata.name of a file that Load refuses, as far as the lines before its first
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
