package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	cases := map[string]struct {
		why, in string
		shows   []string
		err     string
	}{
		"two lines": {
			why:   "each has a name, and both axes have theirs",
			in:    `{"Title":"Lock","X":"objects","Y":"locked","Lines":[{"Name":"ours","Points":[[1000,0.5],[5000,0.6]]},{"Name":"control","Points":[[1000,40],[5000,160]]}]}`,
			shows: []string{"Lock", "objects", "locked", "ours", "control", "1000", "10000", "0.1", "200"},
		},
		"one point":   {why: "a short run has one size", in: `{"Title":"Lock","Lines":[{"Name":"ours","Points":[[1000,1]]}]}`, shows: []string{"ours"}},
		"no points":   {why: "an empty picture tells nothing", in: `{"Title":"Lock"}`, err: `draw "Lock": it has no points`},
		"zero":        {why: "it has no logarithm", in: `{"Title":"Lock","Lines":[{"Name":"ours","Points":[[1000,0]]}]}`, err: "ours has a point at [1000 0]"},
		"not a chart": {why: "it comes from a file", in: `[]`, err: "read the chart"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := render(strings.NewReader(c.in), &out)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || out.Len() > 0 {
					t.Errorf("%s: got %d bytes and error %v, want none and %q", c.why, out.Len(), err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.why, err)
			}
			texts := textsOf(t, out.Bytes())
			for _, want := range c.shows {
				if !texts[want] {
					t.Errorf("%s: the picture does not show %q, only %v", c.why, want, texts)
				}
			}
		})
	}
}

// textsOf reads the texts of an SVG, which must be well formed.
func textsOf(t *testing.T, svg []byte) map[string]bool {
	t.Helper()
	texts := map[string]bool{}
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if text, is := token.(xml.CharData); is {
			texts[strings.TrimSpace(string(text))] = true
		}
	}
}
