// Package crds supplies the CustomResourceDefinitions that a test cluster needs to look like one that
// runs Calico: generated permissive ones by default, or the real ones from a directory.
//
// It knows the shape of the two API groups and nothing of the objects in them. It is for tests and the
// demo only: no product package may import it.
package crds

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/phasegate/phasegate/resources"
)

// EnvDir names the environment variable that points to a directory with the real Calico CRDs, in the
// subfolders v1, v3 and (optionally) admission.
const EnvDir = "CALICO_CRDS"

// Set is everything that Install applies. Callers may filter it, for example to leave one CRD out.
type Set struct {
	// CRDs holds the definitions of both groups.
	CRDs []*unstructured.Unstructured
	// Admission holds Calico's admission policies and their bindings.
	Admission []*unstructured.Unstructured
}

// Load returns the real set when the environment names a directory, a generated one otherwise.
func Load(reg *resources.Registry) (Set, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		return Read(dir)
	}
	return Generate(reg), nil
}

// Release is the directory of the real CRDs of another release, such as 3.32: the sibling of EnvDir's with the release
// behind its name. It is empty where there is none.
func Release(release string) string {
	dir := os.Getenv(EnvDir)
	if dir == "" {
		return ""
	}
	dir = filepath.Clean(dir) + "-" + release
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// Read returns the set found in dir's subfolders v1, v3 and admission. The first two must hold at
// least one file each.
func Read(dir string) (Set, error) {
	var set Set
	for _, sub := range []string{"v1", "v3"} {
		found, err := ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return Set{}, err
		}
		if len(found) == 0 {
			return Set{}, fmt.Errorf("no CRD in %s: point %s to a directory with the subfolders v1 and v3, or unset it",
				filepath.Join(dir, sub), EnvDir)
		}
		set.CRDs = append(set.CRDs, found...)
	}
	var err error
	set.Admission, err = ReadDir(filepath.Join(dir, "admission"))
	return set, err
}

// ReadDir decodes every document of every YAML file in dir, in the order of the file names.
func ReadDir(dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("look for YAML files in %s: %w", dir, err)
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		docs, err := readFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	return out, nil
}

func readFile(file string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read CRD file: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written

	var out []*unstructured.Unstructured
	for dec := utilyaml.NewYAMLOrJSONDecoder(f, 64<<10); ; {
		obj := &unstructured.Unstructured{}
		switch err := dec.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("decode %s: %w", file, err)
		case len(obj.Object) > 0:
			out = append(out, obj)
		}
	}
}
