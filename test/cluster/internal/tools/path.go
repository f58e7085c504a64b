package tools

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// patience is how long a program may take to say its version.
const patience = 10 * time.Second

// version is how programs say theirs, with or without a v, and how go.mod has it. A build of somebody's own
// (v1.37.2+k3s1) is another program.
var version = regexp.MustCompile(`\bv?([0-9]+\.[0-9]+\.[0-9]+[^\s",}]*)`)

// onPath is a program on the PATH that says the version which go.mod pins; empty: there is none. A link is followed,
// since the PATH may have the folder that the links are made in.
func (o Options) onPath(ctx context.Context, p program) string {
	found, err := exec.LookPath(p.name)
	if err == nil {
		found, err = filepath.EvalSymlinks(found)
	}
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return ""
	}
	pinned := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Version}}", p.source)
	pinned.Dir, pinned.Env = filepath.Join(o.Source, p.module), append(os.Environ(), "GOWORK=off")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// #nosec G204 -- its name is one of ours
	want, got := said(pinned), said(exec.CommandContext(ctx, found, p.tell...))
	if want == "" || want != got {
		return ""
	}
	return found
}

// said is the first version in what a command prints; empty: there is none, or the command failed.
func said(command *exec.Cmd) string {
	output, err := command.Output()
	if match := version.FindSubmatch(output); err == nil && match != nil {
		return string(match[1])
	}
	return ""
}
