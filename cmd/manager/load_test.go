package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/internal/checkup"
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

// What a change of a file means is tested where it is decided, in package
// machines; here it is what the files may name.
func TestLoadMachines(t *testing.T) {
	cases := map[string]struct {
		why   string
		files map[string]string
		// names are the machines in force.
		names []string
		// from is the file of the migration's machine, in the directory; empty: compiled in.
		from string
		// waits are named by what keeps the process from being ready, in this order.
		waits []string
		// controllers are those of the process; nil for all.
		controllers []string
	}{
		"no file": {why: "the compiled-in machines stay", names: []string{datastoremigration.MachineName, "mcpserver"}},
		"an edited copy": {
			why:   "a poll interval is changed without a rebuild",
			files: map[string]string{"mine.yaml": shipped(t, "poll: 60s", "poll: 30s")},
			names: []string{datastoremigration.MachineName, "mcpserver"}, from: "mine.yaml",
		},
		"a machine for another kind": {
			why: "it needs no Go code",
			files: map[string]string{"door.yaml": "apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: door}\nspec:\n" +
				"  for: {apiVersion: example.org/v1, kind: Door}\n  initial: Open\n  phases:\n  - {name: Open, terminal: success, onDelete: {immediate: true}}\n"},
			names: []string{datastoremigration.MachineName, "door", "mcpserver"},
		},
		"another machine for the kind of a program": {
			why:   "two would drive each migration",
			files: map[string]string{"door.yaml": shipped(t, "name: datastore-migration", "name: door")},
			names: []string{datastoremigration.MachineName, "mcpserver"}, waits: []string{"machine door"},
		},
		"an unknown action": {
			why:   "the program's own actions can be named, and no others; nothing drives migrations before they were asked",
			files: map[string]string{"b.yaml": shipped(t, "action: Preflight", "action: Preflihgt")},
			names: []string{"mcpserver"}, waits: []string{"machine datastore-migration"},
		},
		"the file of another process": {
			why: "it drives servers, and judges what it runs", controllers: []string{checkup.MCPServer},
			files: map[string]string{"b.yaml": shipped(t, "action: Preflight", "action: Preflihgt")}, names: []string{"mcpserver"},
		},
		"the file of another process, of other kinds": {
			why: "it drives what has a file only", controllers: []string{checkup.Custom},
			files: map[string]string{"b.yaml": shipped(t, "action: Preflight", "action: Preflihgt")}, names: []string{"mcpserver"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, c.files)
			if c.controllers == nil {
				c.controllers = checkup.Controllers
			}
			store, err := loadMachines(&options{phasesDir: dir, controllers: c.controllers}, logr.Discard(), nil)
			if err != nil {
				t.Fatalf("%v: %s", err, c.why)
			}
			if waiting := store.NotDriven(); len(c.waits) > 0 || waiting != nil {
				checkError(t, waiting, dir, c.waits)
			}
			if diff := cmp.Diff(c.names, store.Names()); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			want := "datastore-migration.yaml"
			if c.from != "" {
				want = filepath.Join(dir, c.from)
			}
			if m := store.Of(datastoremigration.MachineName).InForce(); m != nil && m.File() != want {
				t.Errorf("loaded from %s, want %s: %s", m.File(), want, c.why)
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
	store, err := loadMachines(&options{}, logr.Discard(), nil)
	if err != nil || len(store.Names()) != 2 {
		t.Errorf("got %v, %v, want the compiled-in machines", store, err)
	}
	file := filepath.Join(directory(t, map[string]string{"file": "x"}), "file")
	for why, dir := range map[string]string{
		"a misspelt directory must not mean: as compiled in": filepath.Join(t.TempDir(), "nowhere"),
		"a file is not a directory of files":                 file,
	} {
		if _, err := loadMachines(&options{phasesDir: dir}, logr.Discard(), nil); err == nil || !strings.Contains(err.Error(), "--phases-dir") || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want an error that names the flag and %s: %s", err, dir, why)
		}
	}
}
