package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/test/cluster/internal/process"
)

// Options say what to build, from where and to where.
type Options struct {
	// Source is the directory of test/cluster.
	Source string
	// Out receives a link to each program.
	Out string
	// Cache keeps the programs that are not ours.
	Cache string
	// Names are the programs wanted.
	Names []string
	// Assets, if not empty, is a directory of ready binaries, in the manner of
	// KUBEBUILDER_ASSETS. They are taken instead of building the same; of what
	// is not there only our own programs are built. Where it is empty, programs of
	// the pinned version on the PATH are taken.
	Assets string
	// Kubernetes, if not empty, is the version of the servers, v1.30.14 say, in
	// place of the pinned one.
	Kubernetes string
	// Progress receives lines for people.
	Progress io.Writer
}

// build says how programs are built, all of them by one call of go: their packages are loaded and compiled once, and
// while one is linked, which takes one core, another is, too.
type build struct {
	programs []program
	// dir is that of the module.
	dir   string
	flags []string
	// cache is the folder that keeps the programs; empty for ours, which are built each time.
	cache string
	// module, if not empty, is to be the go.mod in dir.
	module []byte
}

// names are those of programs, for people.
func names(of []program) string {
	var all []string
	for _, p := range of {
		all = append(all, p.name)
	}
	return strings.Join(all, ", ")
}

// Build puts the wanted programs into Out. Whatever is built appears under its
// name at once and whole, so two builds at a time do not disturb each other,
// nor does building a program that runs.
func Build(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("make the directory for tools: %w", err)
	}
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED").Output()
	if err != nil {
		return fmt.Errorf("ask go for its version: %w; Go must be installed", err)
	}
	builds, err := o.plan(ctx, string(goVersion))
	if err != nil {
		return err
	}
	for _, b := range builds {
		if err := o.provide(ctx, b); err != nil {
			return fmt.Errorf("provide %s: %w", names(b.programs), err)
		}
	}
	return nil
}

// plan links what is there as Assets, and says how the other programs are built.
func (o Options) plan(ctx context.Context, goVersion string) (builds []*build, err error) {
	for _, p := range programs {
		if !slices.Contains(o.Names, p.name) {
			continue
		}
		if is, err := o.ready(ctx, p); is || err != nil {
			if err != nil {
				return nil, fmt.Errorf("provide %s: %w", p.name, err)
			}
			continue
		}
		b, err := o.locate(ctx, p, goVersion)
		if err != nil {
			return nil, fmt.Errorf("provide %s: %w", p.name, err)
		}
		same := slices.IndexFunc(builds, func(other *build) bool { return other.dir == b.dir && other.cache == b.cache })
		if same < 0 {
			builds = append(builds, &b)
		} else {
			builds[same].programs = append(builds[same].programs, p)
		}
	}
	return builds, nil
}

// ready links a program that need not be built. With Assets, what is not there is not built either.
func (o Options) ready(ctx context.Context, p program) (is bool, err error) {
	switch {
	case p.ours:
		return false, nil
	case o.Assets != "":
		return true, o.fromAssets(p)
	case o.Kubernetes != "":
		return false, nil
	}
	found := o.onPath(ctx, p)
	if found == "" {
		return false, nil
	}
	return true, link(found, filepath.Join(o.Out, p.name))
}

// provide puts the programs of a build into Out.
func (o Options) provide(ctx context.Context, b *build) error {
	if b.cache == "" {
		return o.compile(ctx, b, b.programs, o.Out)
	}
	if err := o.keep(ctx, b); err != nil {
		return err
	}
	for _, p := range b.programs {
		if err := link(filepath.Join(b.cache, p.name), filepath.Join(o.Out, p.name)); err != nil {
			return err
		}
	}
	return nil
}

// fromAssets links a ready binary, or removes an older link where there is
// none, so that a cluster is never made of both.
func (o Options) fromAssets(p program) error {
	target := filepath.Join(o.Out, p.name)
	ready, err := filepath.Abs(filepath.Join(o.Assets, p.name))
	if err != nil {
		return err
	}
	if _, err := os.Stat(ready); err == nil {
		return link(ready, target)
	}
	fmt.Fprintf(o.Progress, "%s is missing: %s has none\n", p.name, o.Assets)
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// missing are the programs that the cache does not have.
func (b *build) missing() []program {
	return slices.DeleteFunc(slices.Clone(b.programs), func(p program) bool {
		_, err := os.Stat(filepath.Join(b.cache, p.name))
		return err == nil
	})
}

// keep makes sure that the cache has all programs. Another build of the same is
// waited for, since it does the same work.
func (o Options) keep(ctx context.Context, b *build) error {
	if len(b.missing()) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return err
	}
	unlock, err := process.Lock(b.cache, func() {
		fmt.Fprintf(o.Progress, "%s: waiting for another build\n", names(b.programs))
	})
	if err != nil {
		return err
	}
	defer unlock()
	missing := b.missing()
	if len(missing) == 0 {
		return nil
	}
	if b.module != nil {
		if err := os.WriteFile(filepath.Join(b.cache, "go.mod"), b.module, 0o600); err != nil {
			return err
		}
	}
	return o.compile(ctx, b, missing, b.cache)
}

// compile builds programs aside and then moves them into a folder.
func (o Options) compile(ctx context.Context, b *build, wanted []program, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	partial, err := os.MkdirTemp(folder, ".partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	var sources []string
	for _, p := range wanted {
		sources = append(sources, p.source)
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, "go", slices.Concat(args, sources)...)
		c.Dir = b.dir
		// A workspace of the user's would replace the pinned versions.
		c.Env = append(os.Environ(), "GOWORK=off")
		return c
	}
	said := &progress{to: o.Progress, what: names(wanted)}
	if b.cache != "" {
		// If it cannot be told, go build says why.
		stale, _ := command(slices.Concat([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, b.flags)...).Output()
		said.total = len(strings.Fields(string(stale)))
	}
	build := command(slices.Concat([]string{"build", "-v"}, b.flags, []string{"-o", partial + string(filepath.Separator)})...)
	build.Stdout, build.Stderr = said, said
	stop := said.begin()
	err = build.Run()
	stop()
	if err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(sources, " "), err, strings.TrimSpace(said.rest.String()))
	}
	for _, p := range wanted {
		if err := os.Rename(filepath.Join(partial, p.executable()), filepath.Join(folder, p.name)); err != nil {
			return err
		}
	}
	return nil
}

// link makes target a symbolic link to file, replacing what was there.
func link(file, target string) error {
	partial := fmt.Sprintf("%s.%d.partial", target, os.Getpid())
	defer os.Remove(partial)
	if err := os.Symlink(file, partial); err != nil {
		return err
	}
	return os.Rename(partial, target)
}
