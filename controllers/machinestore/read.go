package machinestore

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// file is a machine file as it was read.
type file struct {
	name string
	data []byte
	// fault says why it could not be read; empty when it could.
	fault string
}

// isMachineFile goes by the name. A file that somebody has called .yml is to be in force, too: nobody would hear that it is not.
func isMachineFile(name string) bool {
	return filepath.Ext(name) == ".yaml" || filepath.Ext(name) == ".yml"
}

// read lists the machine files (*.yaml, *.yml) of a directory by name; shown is how the
// directory is called in findings. What cannot be read is in the list with its
// fault: leaving it out would look like a file that somebody removed. Names that
// begin with a dot are an editor's, or a mounted ConfigMap's own bookkeeping.
func read(dir fs.FS, shown string) []file {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return []file{{name: shown, fault: err.Error()}}
	}
	var files []file
	for _, entry := range entries {
		if !isMachineFile(entry.Name()) || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		f := file{name: filepath.Join(shown, entry.Name())}
		if f.data, err = fs.ReadFile(dir, entry.Name()); err != nil {
			f.fault = err.Error()
		}
		files = append(files, f)
	}
	return files
}

func same(a, b []file) bool {
	return slices.EqualFunc(a, b, func(a, b file) bool {
		return a.name == b.name && a.fault == b.fault && bytes.Equal(a.data, b.data)
	})
}
