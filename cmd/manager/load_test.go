package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/phases"
)

// shipped is the compiled-in file, with one text replaced by another.
func shipped(t *testing.T, old, replacement string) string {
	t.Helper()
	data, err := phases.Files.ReadFile("datastore-migration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("the shipped file does not say %q any more", old)
	}
	return strings.Replace(string(data), old, replacement, 1)
}

// directory holds files by name; those with an empty text are directories.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(text), 0o600)
		if text == "" {
			err = os.Remove(path)
			if err == nil {
				err = os.Mkdir(path, 0o700)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadMachines(t *testing.T) {
	cases := map[string]struct {
		why   string
		files map[string]string
		// from is the file that the machine comes from, in the directory; empty: compiled in.
		from string
		// errs are in the error, in this order; none: no error.
		errs []string
	}{
		"no file": {why: "the compiled-in machines stay"},
		"an edited copy": {
			why:   "a poll interval is changed without a rebuild",
			files: map[string]string{"mine.yaml": shipped(t, "poll: 60s", "poll: 30s")}, from: "mine.yaml",
		},
		"other files": {
			why:   "a ConfigMap's directory, an editor's leftovers and a README are not machines",
			files: map[string]string{"README.md": "not: [a machine", "mine.yaml~": "x", "..data": ""},
		},
		"another machine": {
			why:   "nobody would run it, and its author would wait for ever",
			files: map[string]string{"door.yaml": shipped(t, "name: datastore-migration", "name: door")},
			errs:  []string{`door.yaml:1:1: PG005: this program has no controller for a machine named "door"`, "machines it can run: datastore-migration"},
		},
		"several findings": {
			why: "all are told at once, so that one edit can repair them",
			files: map[string]string{
				"a.yaml": shipped(t, "initial: Pending", "initial: Nowhere"),
				"b.yaml": shipped(t, "action: Preflight", "action: Preflihgt"),
				"c.yaml": "nonsense: true",
			},
			errs: []string{"a.yaml:", `PG001: initial phase "Nowhere" does not exist`, "b.yaml:", `PG005: action "Preflihgt" is not known`, "c.yaml:1:1: PG000: unknown field"},
		},
		"two of a name": {
			why:   "which of them runs must not depend on the alphabet: a backup next to the file is enough",
			files: map[string]string{"a.yaml": shipped(t, "poll: 60s", "poll: 30s"), "a-old.yaml": shipped(t, "poll: 60s", "poll: 20s")},
			errs:  []string{"a.yaml:1:1: PG", `machine "datastore-migration" is also in `, "a-old.yaml", "keep one"},
		},
		"a directory called yaml": {
			why:   "it cannot be read as a file, and ignoring it could ignore a machine",
			files: map[string]string{"sub.yaml": ""},
			errs:  []string{"read machine file", "sub.yaml"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, c.files)
			machines, err := loadMachines(dir)
			if len(c.errs) > 0 {
				checkError(t, err, dir, c.errs)
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, c.why)
			}
			if diff := cmp.Diff([]string{datastoremigration.MachineName}, slices.Sorted(maps.Keys(machines))); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			want := "datastore-migration.yaml"
			if c.from != "" {
				want = filepath.Join(dir, c.from)
			}
			if got := machines[datastoremigration.MachineName].File(); got != want {
				t.Errorf("loaded from %s, want %s: %s", got, want, c.why)
			}
		})
	}
}

func checkError(t *testing.T, err error, dir string, parts []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	rest := err.Error()
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("the error does not say %q (in this order) but:\n%s", part, strings.ReplaceAll(err.Error(), dir, "DIR"))
		}
		rest = after
	}
}

func TestLoadMachinesWithoutDirectory(t *testing.T) {
	machines, err := loadMachines("")
	if err != nil || len(machines) != 1 {
		t.Errorf("got %v, %v, want the compiled-in machine", machines, err)
	}
	file := filepath.Join(directory(t, map[string]string{"file": "x"}), "file")
	for why, dir := range map[string]string{
		"a misspelt directory must not mean: as compiled in": filepath.Join(t.TempDir(), "nowhere"),
		"a file is not a directory of files":                 file,
	} {
		if _, err := loadMachines(dir); err == nil || !strings.Contains(err.Error(), "--phases-dir") || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want an error that names the flag and %s: %s", err, dir, why)
		}
	}
}
