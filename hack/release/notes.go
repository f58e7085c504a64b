package main

import (
	"fmt"
	"regexp"
	"strings"
)

// relative is a link that leads nowhere outside the repository.
var relative = regexp.MustCompile(`\]\(([a-z]+[/.][^):]*)`)

// notes are the changes of a version, as CHANGELOG.md tells them. A version that
// nobody gave is what is not released yet.
func notes(changelog string, e edition) (string, error) {
	heading := "[Unreleased]"
	if e.final() {
		heading = "[" + strings.TrimPrefix(e.version, "v") + "]"
	}
	var section []string
	within := false
	for line := range strings.Lines(changelog) {
		switch {
		case strings.HasPrefix(line, "## "):
			within = strings.HasPrefix(line, "## "+heading)
		case within && !strings.HasPrefix(line, "["): // links are at the end
			section = append(section, line)
		}
	}
	text := strings.TrimSpace(strings.Join(section, ""))
	if text == "" && e.final() {
		return "", fmt.Errorf("CHANGELOG.md tells nothing under ## %s: move there what is under [Unreleased]", heading)
	}
	return relative.ReplaceAllString(text, "](https://github.com/phasegate/phasegate/blob/"+e.commit+"/$1") + "\n", nil
}
