package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// The checkout.
const root = "../.."

// stages parses the Dockerfile, and complains about what BuildKit's linter finds.
func stages(t *testing.T) (map[string]instructions.Stage, map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, where []parser.Range) {
		t.Errorf("Dockerfile:%d: %s: %s", where[0].Start.Line, rule, message)
	}})
	list, meta, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]instructions.Stage{}
	for _, s := range list {
		byName[s.Name] = s
	}
	args := map[string]string{}
	for _, command := range meta {
		for _, a := range command.Args {
			args[a.Key] = *a.Value
		}
	}
	return byName, args
}

// container is what a stage says of its containers.
type container struct {
	User, Dir  string
	Entrypoint []string
	Labels     map[string]string
	Files      []string
}

// inherit adds what the commands of a stage say.
func (c *container) inherit(s instructions.Stage) {
	for _, command := range s.Commands {
		switch command := command.(type) {
		case *instructions.UserCommand:
			c.User = command.User
		case *instructions.WorkdirCommand:
			c.Dir = command.Path
		case *instructions.EntrypointCommand:
			c.Entrypoint = command.CmdLine
		case *instructions.CopyCommand:
			c.Files = append(c.Files, command.SourcePaths[0]+" → "+command.DestPath)
		case *instructions.LabelCommand:
			for _, l := range command.Labels {
				c.Labels[l.Key] = strings.Trim(l.Value, `"`)
			}
		}
	}
}

// TestDockerfileMakesTheSameImages holds the Dockerfile against the images that the
// release makes without a container engine.
func TestDockerfileMakesTheSameImages(t *testing.T) {
	byName, args := stages(t)
	e := edition{version: "${VERSION}", commit: "${COMMIT}"}
	for program := range programs {
		got := container{Labels: map[string]string{}}
		for _, stage := range []string{"base", program} {
			got.inherit(byName[stage])
		}
		want := container{
			User: user, Dir: "/", Entrypoint: []string{"/" + program}, Labels: labels(program, e),
			Files: []string{"/out/" + program + " → /" + program},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the image %s of the Dockerfile (-release +Dockerfile):\n%s", program, diff)
		}
	}
	if args["BASE_IMAGE"] != "scratch" {
		t.Errorf("images lie on %q: whatever is in it has to be kept up to date", args["BASE_IMAGE"])
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(goMod)[1]
	if !regexp.MustCompile(`golang:` + regexp.QuoteMeta(string(wanted)) + `\.\d+$`).MatchString(args["GO_IMAGE"]) {
		t.Errorf("GO_IMAGE is %q: name a patch release of Go %s, which go.mod asks for", args["GO_IMAGE"], wanted)
	}
}

// TestContextHoldsThePrograms lets Go look for all packages and embedded files in a
// copy of what .dockerignore lets through.
func TestContextHoldsThePrograms(t *testing.T) {
	byName, _ := stages(t)
	var run string
	for _, command := range byName["build"].Commands {
		if r, ok := command.(*instructions.RunCommand); ok {
			run = strings.Join(r.CmdLine, " ")
		}
	}
	script, built, _ := strings.Cut(run, " /out ")
	names := strings.Fields(built)
	if !strings.HasSuffix(script, "hack/build.sh") || len(names) != len(programs) {
		t.Fatalf("the Dockerfile builds with %q, not all programs with hack/build.sh", run)
	}

	context := copied(t, inContext(t))
	args := []string{"list", "-deps", "-f", "{{with .Error}}{{.}}{{end}}"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = context
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf(".dockerignore keeps back what the programs are made of: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(context, "hack/build.sh")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(context, "test")); err == nil {
		t.Error(".dockerignore lets tests through: each edit of one would build the images anew")
	}
}

// inContext tells which files of the checkout a builder of images gets.
func inContext(t *testing.T) func(path string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return func(path string) bool {
		ignored, err := matcher.MatchesOrParentMatches(path)
		if err != nil {
			t.Fatal(err)
		}
		return !ignored
	}
}

// copied copies the files of the checkout that keep wants to a directory of its own.
func copied(t *testing.T, keep func(path string) bool) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("list the files of the checkout: %v", err)
	}
	dir := t.TempDir()
	for path := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if keep(path) {
			transfer(t, path, dir)
		}
	}
	return dir
}

// transfer copies a file with its mode; one that is gone from the working tree is
// gone from the copy.
func transfer(t *testing.T, path, dir string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(root, path))
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, data, info.Mode()&fs.ModePerm); err != nil {
		t.Fatal(err)
	}
}

// TestKo holds the flags of .ko.yaml against those with which hack/build.sh calls go.
func TestKo(t *testing.T) {
	var config struct {
		Builds []struct {
			ID      string   `json:"id"`
			Main    string   `json:"main"`
			Env     []string `json:"env"`
			Flags   []string `json:"flags"`
			Ldflags []string `json:"ldflags"`
		} `json:"builds"`
		DefaultBaseImage string `json:"defaultBaseImage"`
	}
	readYAML(t, filepath.Join(root, ".ko.yaml"), &config)

	calls := filepath.Join(t.TempDir(), "go")
	record := "#!/bin/sh\nfor v in CGO_ENABLED GOFLAGS GOEXPERIMENT GOAMD64 GOARM64 GOWORK; do eval echo $v=\\$$v; done\nprintf '%s\\n' \"$@\"\n"
	if err := os.WriteFile(calls, []byte(record), 0o755); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for _, b := range config.Builds {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack/build.sh"), out, b.ID)
		cmd.Env = append(os.Environ(), "GO="+calls, "VERSION={{.Env.VERSION}}", "COMMIT={{.Env.COMMIT}}")
		said, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(b.Env, []string{"build"}, b.Flags, []string{"-ldflags=" + strings.Join(b.Ldflags, " "), "-o", out + "/", b.Main})
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(string(said)), "\n")); diff != "" {
			t.Errorf("%s (-.ko.yaml +hack/build.sh):\n%s", b.ID, diff)
		}
	}
	if len(config.Builds) != len(programs) {
		t.Errorf(".ko.yaml has %d builds for %d programs", len(config.Builds), len(programs))
	}
}
