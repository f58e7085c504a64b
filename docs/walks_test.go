package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	walkName = regexp.MustCompile(`(?m)^\*\*.+\*\*$`)
	hop      = regexp.MustCompile(`(?m)^\d+\. `)
	// namedFile is a file, with the functions that the text names in it.
	namedFile = regexp.MustCompile("`([a-z0-9_/]+\\.go)`(?: \\(((?:`[A-Za-z]+`(?:, )?)+)\\))?")
	namedFunc = regexp.MustCompile("`([A-Za-z]+)`")
)

// A reader who follows a walk has nothing but the text: each file and function must be where it says. The first three are
// about one pass, and are short.
func TestTheWalksAreThere(t *testing.T) {
	_, walks, _ := strings.Cut(read(t, "architecture.md"), "\n## Five walks\n")
	walks, _, _ = strings.Cut(walks, "\n## ")
	names, texts := walkName.FindAllString(walks, -1), walkName.Split(walks, -1)[1:]
	if len(names) != 5 {
		t.Fatalf("walks: %q, want five", names)
	}
	for i, text := range texts {
		t.Run(strings.Trim(names[i], "*."), func(t *testing.T) {
			seen := followWalk(t, text)
			if hops := len(hop.FindAllString(text, -1)); i < 3 && hops > 8 {
				t.Errorf("%d hops, more than 8", hops)
			}
			for file, times := range seen {
				if i < 3 && times > 1 {
					t.Errorf("%s is named %d times: name its functions where it is named first", file, times)
				}
			}
		})
	}
}

// followWalk looks for each file and function of a walk, and counts how often it names each file. A name without a
// directory is in that of the file before.
func followWalk(t *testing.T, text string) map[string]int {
	t.Helper()
	dir, seen := "", map[string]int{}
	for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
		file := path.Join(dir, m[1])
		if strings.Contains(m[1], "/") {
			file = m[1]
		}
		dir = path.Dir(file)
		seen[file]++
		source, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("%s: there is no such file", file)
			continue
		}
		for _, name := range namedFunc.FindAllStringSubmatch(m[2], -1) {
			if !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?` + name[1] + `[\[(]`).Match(source) {
				t.Errorf("%s has no function %s", file, name[1])
			}
		}
	}
	return seen
}
