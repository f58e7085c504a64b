package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// released is what a version of Kubernetes looks like.
var released = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$`)

// Check refuses what cannot be built together.
func (o Options) Check() error {
	if o.Kubernetes != "" && !released.MatchString(o.Kubernetes) {
		return fmt.Errorf("%q is no version of Kubernetes: write one as in KUBE=v1.30.14", o.Kubernetes)
	}
	if o.Kubernetes != "" && o.Assets != "" {
		return fmt.Errorf("kubernetes %s is to be built (KUBE), and %s is to be used (KUBEBUILDER_ASSETS): give one of the two", o.Kubernetes, o.Assets)
	}
	return nil
}

// locate says where each program is built, with which flags, and where it is kept. The servers of another Kubernetes
// than the pinned one are kept beside a module that is generated for them.
func (o Options) locate(ctx context.Context, p program, goVersion string) (build, error) {
	if o.Kubernetes == "" || !p.server {
		b := build{programs: []program{p}, dir: filepath.Join(o.Source, p.module), flags: flags(p.module, Version)}
		if p.ours {
			return b, nil
		}
		folder, err := key(b.dir, goVersion, b.flags)
		b.cache = filepath.Join(o.Cache, folder)
		return b, err
	}
	published, err := o.download(ctx)
	if err != nil {
		return build{}, err
	}
	b := build{programs: []program{p}, module: generate(published, o.Kubernetes), flags: append(flags(".", o.Kubernetes), "-mod=mod")}
	b.cache = filepath.Join(o.Cache, o.Kubernetes+"-"+digest(goVersion, b.flags, file{"go.mod", b.module}))
	b.dir = b.cache
	return b, nil
}

// download fetches the wanted Kubernetes into Go's module cache, and returns its go.mod.
func (o Options) download(ctx context.Context) ([]byte, error) {
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+o.Kubernetes)
	command.Dir, command.Env = o.Cache, append(os.Environ(), "GOWORK=off")
	var output, complaint bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaint
	err := command.Run()
	var module struct{ GoMod, Error string }
	if parsed := json.Unmarshal(output.Bytes(), &module); parsed != nil {
		return nil, fmt.Errorf("go mod download k8s.io/kubernetes@%s: %w\n%s", o.Kubernetes, errors.Join(err, parsed), complaint.String())
	}
	if module.Error != "" {
		return nil, fmt.Errorf("kubernetes %s cannot be fetched: %s: name a release that the module proxy serves (`go env GOPROXY`), as in KUBE=v1.30.14",
			o.Kubernetes, strings.Join(strings.Fields(module.Error), " "))
	}
	return os.ReadFile(module.GoMod)
}

// staging is a replacement by a part of Kubernetes' own repository, which its module does not contain.
var staging = regexp.MustCompile(`=> \./staging/src/(\S+)`)

// generate turns the go.mod of k8s.io/kubernetes into that of a module which builds its programs: what is published
// from the staging tree takes its place, all other versions stay.
func generate(published []byte, version string) []byte {
	libraries := "v0." + strings.TrimPrefix(version, "v1.")
	module := staging.ReplaceAll(published, []byte("=> $1 "+libraries))
	module = bytes.Replace(module, []byte("\nmodule k8s.io/kubernetes\n"), []byte("\nmodule phasegate.dev/kubernetes\n"), 1)
	return append(module, "\nrequire k8s.io/kubernetes "+version+"\n"...)
}
