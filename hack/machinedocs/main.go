// Command machinedocs writes docs/machines/NAME.md for each machine in phases/, and
// beside it NAME.bindings.yaml: what its program has, for those who check, prove or
// simulate a machine without the program, as the tests of the engine do. It is
// called by hack/generate.sh, with the directory to write to.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/show/describe"
	"github.com/phasegate/phasegate/phases"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: machinedocs DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "machinedocs:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	names, err := fs.Glob(phases.Files, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := writeMachine(dir, name); err != nil {
			return err
		}
	}
	return nil
}

func writeMachine(dir, name string) error {
	data, err := fs.ReadFile(phases.Files, name)
	if err != nil {
		return err
	}
	def, diags := fsm.Load("phases/"+name, data)
	if err := diags.Err(); err != nil {
		return err
	}
	known, err := catalog.Bindings(def)
	if err != nil {
		return err
	}
	m, diags := fsm.Bind(def, known)
	if err := diags.Err(); err != nil {
		return err
	}
	bindings, err := known.File(m.Name())
	if err != nil {
		return err
	}
	for ending, content := range map[string]string{".md": describe.New(m).Page(), ".bindings.yaml": string(bindings)} {
		if err := os.WriteFile(filepath.Join(dir, m.Name()+ending), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
