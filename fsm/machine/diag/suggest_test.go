package diag

import "testing"

func TestInstead(t *testing.T) {
	cases := map[string]struct {
		why, name string
		known     []string
		want      string
	}{
		"a letter":      {why: "typing errors are short", name: "Doen", known: []string{"Pending", "Done"}, want: "did you mean Done? phases: Pending, Done"},
		"another case":  {why: "names are compared as written", name: "gone", known: []string{"Gone", "Done"}, want: "did you mean Gone? phases: Gone, Done"},
		"the nearest":   {why: "the first is not always it", name: "Patchh", known: []string{"Path", "Patch"}, want: "did you mean Patch? phases: Path, Patch"},
		"something new": {why: "a guess would mislead", name: "Rollback", known: []string{"Pending", "Done"}, want: "phases: Pending, Done"},
		"a short one":   {why: "half of its letters is another name", name: "ab", known: []string{"xy"}, want: "phases: xy"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Instead(c.name, "phases", c.known); got != c.want {
				t.Errorf("%s: %q, want %q", c.why, got, c.want)
			}
		})
	}
}
