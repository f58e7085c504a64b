package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBar(t *testing.T) {
	cases := map[string]struct {
		why         string
		done, total int
		filled      int
	}{
		"Nothing": {why: "the beginning", done: 0, total: 1000, filled: 0},
		"Half":    {why: "in proportion", done: 500, total: 1000, filled: barWidth / 2},
		"Almost":  {why: "full only when all is done", done: 999, total: 1000, filled: barWidth - 1},
		"All":     {why: "the end", done: 1000, total: 1000, filled: barWidth},
		"More":    {why: "never beyond its end", done: 1200, total: 1000, filled: barWidth},
		"Unknown": {why: "no total, no division", done: 5, total: 0, filled: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := strings.Repeat("█", tc.filled) + strings.Repeat("·", barWidth-tc.filled)
			if diff := cmp.Diff(want, bar(tc.done, tc.total)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// A log gets no control characters, no line twice, and progress once a second.
func TestPlainOutput(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	term := newTerminal(out)
	term.progress("one")
	term.progress("two, at once")
	term.line("kept")
	term.told = term.told.Add(-2 * plainEvery)
	term.progress("three")
	term.progress("three")
	term.progress("  ")
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("  one\n  kept\n  three\n", string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLiveOutput(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	term := newTerminal(out)
	term.live = true
	term.progress("one")
	term.progress("one")
	term.progress("two")
	term.line("kept")
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	const erase = "\r\x1b[K"
	if diff := cmp.Diff(erase+"  one"+erase+"  two"+erase+"  kept\n", string(got)); diff != "" {
		t.Errorf("the status line is rewritten, and gone before a line that stays (-want +got):\n%s", diff)
	}
}
