package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	// is not there only our own programs are built.
	Assets string
	// Kubernetes, if not empty, is the version of the servers, v1.30.14 say, in
	// place of the pinned one.
	Kubernetes string
	// Progress receives lines for people.
	Progress io.Writer
}

// build says how a program is built.
type build struct {
	// dir is that of the module.
	dir   string
	flags []string
	// cache is the folder that keeps the program.
	cache string
	// module, if not empty, is to be the go.mod in dir.
	module []byte
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
	var wanted []program
	for _, p := range programs {
		if slices.Contains(o.Names, p.name) {
			wanted = append(wanted, p)
		}
	}
	for i, p := range wanted {
		step := fmt.Sprintf("[%d/%d] %s", i+1, len(wanted), p.name)
		if err := o.provide(ctx, p, step, string(goVersion)); err != nil {
			return fmt.Errorf("provide %s: %w", p.name, err)
		}
	}
	return nil
}

// provide puts one program into Out.
func (o Options) provide(ctx context.Context, p program, step, goVersion string) error {
	target := filepath.Join(o.Out, p.name)
	if o.Assets != "" && !p.ours {
		return o.fromAssets(p, target, step)
	}
	b, err := o.locate(ctx, p, goVersion)
	if err != nil {
		return err
	}
	if p.ours {
		return o.compile(ctx, p, b, target, step)
	}
	kept := filepath.Join(b.cache, p.name)
	if err := o.keep(ctx, p, b, kept, step); err != nil {
		return err
	}
	return link(kept, target)
}

// fromAssets links a ready binary, or removes an older link where there is
// none, so that a cluster is never made of both.
func (o Options) fromAssets(p program, target, step string) error {
	ready, err := filepath.Abs(filepath.Join(o.Assets, p.name))
	if err != nil {
		return err
	}
	if _, err := os.Stat(ready); err == nil {
		return link(ready, target)
	}
	fmt.Fprintf(o.Progress, "%s is missing: %s has none\n", step, o.Assets)
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// keep makes sure that the cache has a program. Another build of the same is
// waited for, since it does the same work.
func (o Options) keep(ctx context.Context, p program, b build, kept, step string) error {
	if _, err := os.Stat(kept); err == nil {
		return nil
	}
	folder := filepath.Dir(kept)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	unlock, err := process.Lock(folder, func() {
		fmt.Fprintf(o.Progress, "%s: waiting for another build of it\n", step)
	})
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(kept); err == nil {
		return nil
	}
	if b.module != nil {
		if err := os.WriteFile(filepath.Join(folder, "go.mod"), b.module, 0o600); err != nil {
			return err
		}
	}
	return o.compile(ctx, p, b, kept, step)
}

// compile builds a program into a file beside target and then renames it.
func (o Options) compile(ctx context.Context, p program, b build, target, step string) error {
	target, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	partial := fmt.Sprintf("%s.%d.partial", target, os.Getpid())
	defer os.Remove(partial)
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, b.flags, []string{"-o", partial, p.source})...)
	command.Dir = b.dir
	// A workspace of the user's would replace the pinned versions.
	command.Env = append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	finished := o.narrate(step)
	err = command.Run()
	finished(err)
	if err != nil {
		return fmt.Errorf("go build %s: %w\n%s", p.source, err, strings.TrimSpace(output.String()))
	}
	return os.Rename(partial, target)
}

// narrate says now and then that a build goes on, and at its end how long it
// took; one that is over in moments is not worth a line.
func (o Options) narrate(step string) (finished func(error)) {
	begun := time.Now()
	seconds := func() int { return int(time.Since(begun).Seconds()) }
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for wait := 2 * time.Second; ; wait = 15 * time.Second {
			select {
			case <-done:
				return
			case <-time.After(wait):
				fmt.Fprintf(o.Progress, "%s: building for %ds (the first time takes minutes)\n", step, seconds())
			}
		}
	}()
	return func(err error) {
		close(done)
		<-ended
		if err == nil && seconds() >= 2 {
			fmt.Fprintf(o.Progress, "%s: built in %ds\n", step, seconds())
		}
	}
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
