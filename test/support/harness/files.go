package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const module = "module github.com/phasegate/phasegate\n"

// Root finds the repository that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte(module)) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository: the working directory is not in it: change into it")
		}
		dir = parent
	}
}

// Binary is the path of a program that `make build` leaves in bin, such as
// "manager". It is an error if it is not there; whether it is up to date is not
// checked.
func Binary(name string) (string, error) {
	return find("", "bin", name, "make build")
}

// tool is the path of a program in dir, or in bin/tools if dir is empty.
func tool(dir, name string) (string, error) {
	return find(dir, filepath.Join("bin", "tools"), name, "make tools")
}

func find(dir, inRepository, name, remedy string) (string, error) {
	if dir == "" {
		root, err := Root()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, inRepository)
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w: run `%s`", name, err, remedy)
	}
	return path, nil
}
