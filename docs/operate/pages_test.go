// Package operate_test keeps the pages for operators true: what they name exists,
// and what a cluster can show has its place in them.
package operate_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// Whoever sees a check, a reason or an alert finds it on the page that its URL
// names; and what nothing shows any more does not stay there.
func TestTroubleshootingIsComplete(t *testing.T) {
	cases := map[string]struct {
		why, prefix string
		shown       func(*testing.T) []string
	}{
		"checks":  {why: "`manager check` prints the URL", prefix: "check-", shown: checkIDs},
		"reasons": {why: "kubectl describe shows them", prefix: "reason-", shown: reasons},
		"alerts":  {why: "runbook_url leads there", prefix: "alert-", shown: alerts},
	}
	page := anchors(read(t, "troubleshooting.md"))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]bool{}
			for _, id := range c.shown(t) {
				want[c.prefix+strings.ToLower(id)] = true
			}
			if len(want) < 5 {
				t.Fatalf("only %d were found: is the collector of this test still right?", len(want))
			}
			got := maps.Clone(page)
			maps.DeleteFunc(got, func(id string, _ bool) bool { return !strings.HasPrefix(id, c.prefix) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-shown by the program +on the page):\n%s", c.why, diff)
			}
		})
	}
}

// alerts are the names of the chart's alerting rules.
func alerts(t *testing.T) (names []string) {
	var file struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, root+"/charts/phasegate/files/monitoring/rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				names = append(names, rule.Alert)
			}
		}
	}
	return names
}

// Every relative link of every page leads to a file, and its fragment to a place in it.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	places := map[string]map[string]bool{}
	count := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, page)), -1) {
			file, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			count++
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: (%s): %v", page, m[1], err)
				continue
			}
			if fragment == "" {
				continue
			}
			if places[target] == nil {
				places[target] = anchors(read(t, target))
			}
			if !places[target][fragment] {
				t.Errorf("%s: (%s): no such place in %s", page, m[1], target)
			}
		}
	}
	if count < 50 {
		t.Errorf("%d links were found: is the pattern still right?", count)
	}
}

// A heading begins after an empty line or an anchor, and no line is punctuation alone: an edit that loses the end of a
// line leaves either.
func TestLinesEndWhereTheyShould(t *testing.T) {
	broken := regexp.MustCompile(`(?m)^ *[.,;:]$|^[^<\s][^\n]*\n#{1,6} .*$`)
	for _, page := range pages(t) {
		for _, found := range broken.FindAllString(prose(read(t, page)), -1) {
			t.Errorf("%s: %q", page, found)
		}
	}
}

// pages are all documents for people: README, CONTRIBUTING and what is under docs.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{root + "/README.md", root + "/CONTRIBUTING.md"}
	err := filepath.WalkDir(root+"/docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```[^\n]*\n.*?^ *```$")
	spans    = regexp.MustCompile("`[^`\n]+`")
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	explicit = regexp.MustCompile(`<a id="([^"]+)">`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// prose is a page without its code.
func prose(page string) string {
	return spans.ReplaceAllString(fenced.ReplaceAllString(page, ""), "code")
}

// anchors are the fragments that lead into a page: those that GitHub makes of
// headings, and those that are written out.
func anchors(page string) map[string]bool {
	page = fenced.ReplaceAllString(page, "")
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := linked.ReplaceAllString(m[1], "$1")
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		id := slug
		for i := 1; found[id]; i++ {
			id = fmt.Sprintf("%s-%d", slug, i)
		}
		found[id] = true
	}
	for _, m := range explicit.FindAllStringSubmatch(page, -1) {
		found[m[1]] = true
	}
	return found
}

// An anchor by heading, one written out, a repeated heading, and code that only
// looks like a heading.
func TestAnchors(t *testing.T) {
	page := "# Break glass: unlock\n<a id=\"reason-created\"></a>\n## A `flag`, [linked](x.md)\n## Twice\n## Twice\n```sh\n# no heading\n```\n"
	want := []string{"a-flag-linked", "break-glass-unlock", "reason-created", "twice", "twice-1"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(anchors(page)))); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
