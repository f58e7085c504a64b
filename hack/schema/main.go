// Command schema writes the JSON Schemas of the file kinds, from their Go types
// and doc comments in api/phasegate/v1alpha1 and from the table in details.go.
// hack/generate.sh runs it in the root of the repository.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

const (
	module  = "github.com/phasegate/phasegate"
	types   = "api/phasegate/v1alpha1"
	schemas = types + "/schema"
)

func main() {
	for name, value := range map[string]any{
		"machine": &v1alpha1.Machine{}, "kindregistry": &v1alpha1.KindRegistry{},
	} {
		if err := write(filepath.Join(schemas, name+".schema.json"), value); err != nil {
			fmt.Fprintln(os.Stderr, "schema:", err)
			os.Exit(1)
		}
	}
}

func write(file string, value any) error {
	// Without an id: the schema is used from wherever a file refers to it.
	r := &jsonschema.Reflector{Anonymous: true}
	if err := r.AddGoComments(module, types, jsonschema.WithFullComment()); err != nil {
		return fmt.Errorf("read the comments of %s: %w", types, err)
	}
	s := r.Reflect(value)
	for name, def := range s.Definitions {
		if err := describe(name, def); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// describe adds to a type what Go's types do not say.
func describe(name string, def *jsonschema.Schema) error {
	def.Description = oneLine(def.Description)
	if detail := details[name]; detail != nil {
		detail(def)
	}
	for p := def.Properties.Oldest(); p != nil; p = p.Next() {
		path := name + "." + p.Key
		text := oneLine(p.Value.Description)
		if text == "" {
			return fmt.Errorf("%s has no doc comment in %s: an editor has nothing to show", path, types)
		}
		// A doc comment begins with Go's name; who writes a file knows the other.
		if word, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(word, p.Key) {
			text = p.Key + " " + rest
		}
		p.Value.Description = text
		if p.Value.Type == "string" && slices.Contains(def.Required, p.Key) {
			p.Value.MinLength = ptr(1)
		}
		if detail := details[path]; detail != nil {
			detail(p.Value)
		}
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func ptr(n uint64) *uint64 { return &n }
