package diag

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Bounds of a file; a larger or deeper one is refused before decoding.
const (
	MaxFileSize  = 256 << 10
	maxFileDepth = 32
	maxFileNodes = 20_000
)

// Source is where the values of a decoded file stand.
type Source struct {
	// File is the name used in diagnostics.
	File string

	at    map[string]place
	lines []string
}

type place struct {
	Pos
	style yamlv3.Style
}

// Pos is where a value such as spec.phases[2].next[0].when stands, or the
// nearest one above it.
func (s *Source) Pos(path string) Pos { return s.Finding(path, "", "", "").Pos }

// Decode fills a Go value from a YAML file, strictly: what is written must be a
// field of the type, of its type, and there once. Fields without omitempty are
// required. It reads nothing but data; the source is nil when there is a finding.
func Decode(file string, data []byte, into any) (*Source, Diagnostics) {
	s := &Source{File: file, at: map[string]place{}, lines: strings.Split(string(data), "\n")}
	if diags := s.decode(data, into); len(diags) > 0 {
		return nil, diags.Sorted()
	}
	return s, nil
}

func (s *Source) decode(data []byte, into any) Diagnostics {
	if len(data) > MaxFileSize {
		return Diagnostics{s.diagAt(place{Pos: Pos{1, 1}}, "PG000",
			fmt.Sprintf("the file has %d bytes, more than %d", len(data), MaxFileSize), "split it or shorten its texts")}
	}
	root, err := parseYAML(data)
	if err != nil {
		return Diagnostics{s.diagAt(place{Pos: Pos{s.brokenLine(err), 1}}, "PG000", whereYAMLBroke.ReplaceAllString(err.Error(), "$1"), "write one valid YAML document")}
	}
	w := &walker{source: s}
	w.walk(root, reflect.TypeOf(into).Elem(), "", 0)
	if len(w.diags) > 0 {
		return w.diags
	}
	if err := decodeInto(root, into); err != nil {
		return Diagnostics{s.diagAt(place{Pos: Pos{errorLine(err), 1}}, "PG000", err.Error(), "see docs/machine-format.md")}
	}
	return nil
}

func parseYAML(data []byte) (*yamlv3.Node, error) {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc, more yamlv3.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty")
		}
		return nil, err
	}
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("the file holds more than one document: another begins at line %d", more.Line)
}

// decodeInto fills a value from the tree that the walker has seen: a second
// parser could read the same text differently (yes, on and 1:30 are such).
func decodeInto(root *yamlv3.Node, into any) error {
	var tree any
	if err := root.Decode(&tree); err != nil {
		return err
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	// As the API machinery decodes it: whole numbers stay whole, and exact.
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowUnknownFields)
	return errors.Join(append(strict, err)...)
}

// brokenLine is the first line with which the file is no YAML any more. The parser names the begin of the block around
// it, which can be far above.
func (s *Source) brokenLine(err error) int {
	if !whereYAMLBroke.MatchString(err.Error()) {
		return errorLine(err) // it is YAML
	}
	parses := func(n int) bool {
		return yamlv3.Unmarshal([]byte(strings.Join(s.lines[:n], "\n")), &yamlv3.Node{}) == nil
	}
	good, bad := 0, len(s.lines)
	for {
		for bad-good > 1 {
			if middle := (good + bad) / 2; parses(middle) {
				good = middle
			} else {
				bad = middle
			}
		}
		// A value of several lines is no YAML either until its last one.
		const longest = 50
		for n := min(bad+longest, len(s.lines)); n > bad; n-- {
			if parses(n) {
				good, bad = n, len(s.lines)
				break
			}
		}
		if bad-good <= 1 {
			return bad
		}
	}
}

// whereYAMLBroke is how the parser begins.
var whereYAMLBroke = regexp.MustCompile(`^(yaml: )line \d+: `)

var lineInError = regexp.MustCompile(`line (\d+)`)

func errorLine(err error) int {
	if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
		if n, e := strconv.Atoi(m[1]); e == nil {
			return n
		}
	}
	return 1
}

// Finding makes an error at a path such as spec.phases[2].next[0].when, or at the
// nearest place above it that the file has.
func (s *Source) Finding(path, code, message, fix string) Diagnostic {
	at, known := s.at[path]
	for p := path; !known; at, known = s.at[p] {
		cut := strings.LastIndexAny(p, ".[")
		if cut < 0 {
			at = place{Pos: Pos{1, 1}}
			break
		}
		p = p[:cut]
	}
	x := s.diagAt(at, code, message, fix)
	x.Path = path
	return x
}

// Stand lets values that were made of others stand where those do: made has the path of the other by that of each. What is
// below a value stands where the same is below the other.
func (s *Source) Stand(made map[string]string) {
	copies := map[string][]string{}
	for to, from := range made {
		copies[from] = append(copies[from], to)
	}
	was := maps.Clone(s.at)
	above(was, func(path, top string) {
		if made[top] != "" {
			delete(s.at, path)
		}
	})
	above(was, func(path, top string) {
		for _, to := range copies[top] {
			s.at[to+path[len(top):]] = was[path]
		}
	})
}

// above visits each path with each of those above it, and itself.
func above(at map[string]place, visit func(path, top string)) {
	for path := range at {
		visit(path, path)
		for i, r := range path {
			if r == '.' || r == '[' {
				visit(path, path[:i])
			}
		}
	}
}

func (s *Source) diagAt(at place, code, message, fix string) Diagnostic {
	return Diagnostic{Code: code, File: s.File, Pos: at.Pos, Severity: SeverityError, Message: message, Fix: fix}
}

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
