package printable_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/printable"
)

func TestTexts(t *testing.T) {
	cases := map[string]struct{ why, text, line, lines, block string }{
		"plain":         {why: "most texts are returned as they are", text: "Größe → 5 ✓ 日本\u3000語", line: "Größe → 5 ✓ 日本\u3000語"},
		"escape":        {why: "it begins the commands of a terminal", text: "a\x1b]0;title\x07b", line: `a\u001b]0;title\u0007b`},
		"C1":            {why: "U+009B alone is such a beginning", text: "a\u009b2Jb", line: `a\u009b2Jb`},
		"C1 as a byte":  {why: "some terminals take it, and it is no UTF-8", text: "a\x9b2Jb", line: `a\x9b2Jb`},
		"delete":        {why: "it takes away what was there", text: "a\x7fb\bc", line: `a\u007fb\u0008c`},
		"direction":     {why: "it turns the order of what follows", text: "a\u202eb\u2066c", line: `a\u202eb\u2066c`},
		"no width":      {why: "two names could look the same", text: "a\u200bb\u2060c\ufeffd\u00ade", line: `a\u200bb\u2060c\ufeffd\u00ade`},
		"tags":          {why: "whole texts can be hidden in them", text: "a\U000e0041b", line: `a\udb40\udc41b`},
		"separators":    {why: "some programs break lines there", text: "a\u2028b\u2029c\u0085d", line: `a\u2028b\u2029c\u0085d`},
		"line breaks":   {why: "they are for texts of several lines", text: "a\nb\tc\r\n", line: `a\nb\tc\r\n`, lines: "a\nb\tc\\r\n", block: "a\n  b\tc\\r"},
		"several lines": {why: "the further ones are no lines of ours", text: "a\nNext  kubectl\n\n", line: `a\nNext  kubectl\n\n`, lines: "a\nNext  kubectl\n\n", block: "a\n  Next  kubectl"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.lines == "" {
				c.lines, c.block = c.line, c.line
			}
			got := []string{printable.Line(c.text), printable.Text(c.text), printable.Block(c.text)}
			if diff := cmp.Diff([]string{c.line, c.lines, c.block}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// hidden tells of characters that a terminal acts on, or that nobody sees.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// What is shown is seen, and JSON says the same as before.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{"", "a", "\x1b[2J", "\u202e\x9b\x7f\u2028", "é\xc3", "\U000e0041", "a\nb\t\r"} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		for _, got := range []string{printable.Line(text), strings.NewReplacer("\n", "", "\t", "").Replace(printable.Text(text))} {
			if i := strings.IndexFunc(got, hidden); i >= 0 {
				t.Errorf("%q still has %q", got, got[i:])
			}
		}
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var want, again string
		if err := errors.Join(json.Unmarshal(data, &want), json.Unmarshal([]byte(printable.Text(string(data))), &again)); err != nil || again != want {
			t.Errorf("JSON of %q became that of %q: %v", want, again, err)
		}
		at := max(0, min(cut, len(text)))
		if got, want := written(t, text[:at], text[at:], "end"), printable.Text(text+"end"); got != want {
			t.Errorf("written in parts, cut at %d: %q, want %q", at, got, want)
		}
	})
}

// written is what comes of texts that are written one after the other.
func written(t *testing.T, parts ...string) string {
	t.Helper()
	var whole strings.Builder
	w := printable.NewWriter(&whole)
	for _, part := range parts {
		if n, err := w.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatal(n, err)
		}
	}
	return whole.String()
}

func TestWriter(t *testing.T) {
	var out strings.Builder
	w := printable.NewWriter(&out, "\x1b[1m", "\x1b[m")
	if _, err := w.Write([]byte("\x1b[1mbold\x1b[m \x1b[8mhidden\x1b[2J\n")); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[1mbold\x1b[m \\u001b[8mhidden\\u001b[2J\n"; out.String() != want {
		t.Errorf("got %q, want %q: styles of ours stay, others do not", out.String(), want)
	}
}

func TestValue(t *testing.T) {
	type inner struct {
		Name string
		At   *time.Time
	}
	type outer struct {
		Text    string
		Several string `printable:"lines"`
		Inner   *inner
		List    []inner
		Map     map[string]any
		None    []string
		own     string
	}
	at := time.Unix(1, 0)
	bad := "a\n\x1b"
	given := outer{Text: bad, Several: bad, Inner: &inner{bad, &at}, List: []inner{{Name: bad}}, Map: map[string]any{bad: []any{bad, 1}}, own: "own"}
	want := outer{Text: `a\n\u001b`, Several: "a\n\\u001b", Inner: &inner{`a\n\u001b`, &at}, List: []inner{{Name: `a\n\u001b`}}, Map: map[string]any{`a\n\u001b`: []any{`a\n\u001b`, 1}}, own: "own"}
	if diff := cmp.Diff(want, printable.Value(given), cmp.AllowUnexported(outer{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if given.Text != bad || given.Inner.Name != bad || given.List[0].Name != bad {
		t.Errorf("the value itself was changed: %+v", given)
	}
}
