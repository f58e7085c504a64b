// Package tools builds the programs that a test cluster needs, from Go modules
// and with nothing but the go command, and keeps what is big in the user's
// cache directory. It must not know how the programs are run.
package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Version is the Kubernetes version that go.mod builds, which the binaries
// have to be told: clients cannot parse what they would answer otherwise.
const Version = "v1.37.2"

// program is something that can be built.
type program struct {
	name string
	// source is the Go package, relative to module if it begins with a dot.
	source string
	// module is the directory, relative to test/cluster, of the go.mod that
	// pins the program.
	module string
	// ours is set for programs whose source is here: they are built every time,
	// which is quick when nothing changed, and not kept in the cache.
	ours bool
	// tell are the arguments with which the program says its version.
	tell []string
	// server is set for what is built in another version of Kubernetes if one is
	// wanted.
	server bool
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// executable is the name that go gives to the program: the last element of its package which is no major version.
func (p program) executable() string {
	name := path.Base(p.source)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(p.source))
	}
	return name
}

// programs lists all there are; helm, which the servers do not need, is last.
var programs = []program{
	{name: "etcd", source: "go.etcd.io/etcd/server/v3", module: ".", tell: []string{"--version"}},
	{name: "kube-apiserver", source: "k8s.io/kubernetes/cmd/kube-apiserver", module: ".", tell: []string{"--version"}, server: true},
	{name: "kube-controller-manager", source: "k8s.io/kubernetes/cmd/kube-controller-manager", module: ".", tell: []string{"--version"}, server: true},
	{name: "kube-scheduler", source: "k8s.io/kubernetes/cmd/kube-scheduler", module: ".", tell: []string{"--version"}, server: true},
	{name: "kubectl", source: "k8s.io/kubernetes/cmd/kubectl", module: ".", tell: []string{"version", "--client"}},
	{name: "fakenodes", source: "./cmd/fakenodes", module: ".", ours: true},
	{name: "helm", source: "helm.sh/helm/v4/cmd/helm", module: "helm", tell: []string{"version"}},
}

// Select returns the names of all programs except those to skip, and refuses
// to skip what does not exist.
func Select(skip []string) ([]string, error) {
	var all, names []string
	for _, p := range programs {
		all = append(all, p.name)
		if !slices.Contains(skip, p.name) {
			names = append(names, p.name)
		}
	}
	for _, name := range skip {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("cannot skip %q: there is only %s", name, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// flags are the same for all programs of a module, so that they share what is
// compiled. None of them changes how a library is compiled: most of those are the product's, too, and its build
// finds them in Go's cache.
func flags(module, version string) []string {
	if module != "." {
		return []string{"-buildvcs=false"}
	}
	minor := strings.Split(version, ".")[1]
	ldflags := []string{"-s", "-w"}
	stamped := []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"}
	for _, pkg := range stamped {
		for _, set := range []string{"gitVersion=" + version, "gitMajor=1", "gitMinor=" + minor, "gitTreeState=clean"} {
			ldflags = append(ldflags, "-X", pkg+"."+set)
		}
	}
	return []string{"-buildvcs=false", "-ldflags", strings.Join(ldflags, " ")}
}

// file is one that a build depends on.
type file struct {
	name    string
	content []byte
}

// key names the cache folder for what is built with flags from the module in
// dir: it changes with everything that the result depends on.
func key(dir, goVersion string, flags []string) (string, error) {
	var files []file
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("hash the module: %w", err)
		}
		files = append(files, file{name, content})
	}
	return digest(goVersion, flags, files...), nil
}

func digest(goVersion string, flags []string, files ...file) string {
	hash := sha256.New()
	fmt.Fprintln(hash, goVersion, flags)
	for _, f := range files {
		fmt.Fprintf(hash, "%s %d\n%s", f.name, len(f.content), f.content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
