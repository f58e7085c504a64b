package main

import (
	"fmt"
	"os"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// readExamples answers, for each action that machine files use, the first place
// where one does: a named action or a step, as it is written there.
func readExamples(files ...string) (map[string]string, error) {
	examples := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var doc yamlv3.Node
		if err := yamlv3.Unmarshal(data, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		lines := strings.Split(string(data), "\n")
		spec := field(doc.Content[0], "spec")
		items := append([]*yamlv3.Node{}, field(spec, "actions").Content...)
		for _, phase := range field(spec, "phases").Content {
			items = append(items, field(phase, "steps").Content...)
		}
		for _, item := range items {
			name := field(item, "use").Value + field(item, "action").Value
			if examples[name] == "" {
				examples[name] = written(item, lines)
			}
		}
	}
	return examples, nil
}

// field is an empty node when the mapping does not have it.
func field(mapping *yamlv3.Node, name string) *yamlv3.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return &yamlv3.Node{}
}

// written is an item of a list in the lines of its file, moved to the left.
func written(item *yamlv3.Node, lines []string) string {
	begin := item.Line - 1
	indent := strings.Index(lines[begin], "- ")
	end := begin + 1
	for end < len(lines) && strings.HasPrefix(lines[end], strings.Repeat(" ", indent+1)) {
		end++
	}
	var b strings.Builder
	for _, line := range lines[begin:end] {
		b.WriteString(line[indent:] + "\n")
	}
	return b.String()
}
