// Package pages holds the page of each lint code, so that programs can show it.
package pages

import (
	"embed"
	"fmt"
)

//go:embed PG*.md
var files embed.FS

// Page is the page of a code as Markdown. The error is for a code that has none.
func Page(code string) (string, error) {
	data, err := files.ReadFile(code + ".md")
	if err != nil {
		return "", fmt.Errorf("there is no page for code %q", code)
	}
	return string(data), nil
}
