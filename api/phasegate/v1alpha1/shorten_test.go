package v1alpha1_test

import (
	"testing"
	"unicode/utf8"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

func TestShorten(t *testing.T) {
	cases := map[string]struct {
		why   string
		text  string
		limit int
		want  string
	}{
		"Empty":            {why: "nothing to cut", text: "", limit: 3, want: ""},
		"Fits":             {why: "a text at the bound is kept whole", text: "abc", limit: 3, want: "abc"},
		"TooLong":          {why: "the API server would refuse the whole write; the reader sees that there was more", text: "abcd", limit: 3, want: "ab…"},
		"CountsCharacters": {why: "the bound of the API server is in characters, not bytes", text: "ééé", limit: 3, want: "ééé"},
		"CutsCharacters":   {why: "half a character is not valid UTF-8", text: "éééé", limit: 3, want: "éé…"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := v1alpha1.Shorten(tc.text, tc.limit)
			if got != tc.want || !utf8.ValidString(got) {
				t.Errorf("%s: got %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}
