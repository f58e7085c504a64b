// Package tutorials does what the tutorials say, on a real control plane: every block
// of shell that is marked `sh run`, in the order of the page, as a reader would.
package tutorials

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	stopLimit  = 30 * time.Second
	blockLimit = "180"
)

// runnable is a block that runs, with the other words of its first line, and with the lines of its output that the page
// shows below it.
var runnable = regexp.MustCompile("(?ms)^```sh run([^\n]*)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")

// exported is the line by which the practice cluster hands itself over.
var exported = regexp.MustCompile(`(?m)export KUBECONFIG=(\S+)`)

// reader is somebody with a terminal, who follows a page.
type reader struct {
	root string
	env  []string
	// recorded is what the terminal showed of the blocks that are for the picture.
	recorded strings.Builder
}

// The pages that are followed.
const (
	migrate = "docs/tutorials/migrate-a-test-cluster.md"
	extend  = "docs/tutorials/extend-a-machine.md"
	own     = "docs/tutorials/your-own-controller.md"
)

// A block that is marked and does not run would promise what nobody has tried.
func TestEveryMarkedBlockRuns(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	var marked []string
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if runnable.Match(text) {
			page, _ := filepath.Rel(root, path) // it is below
			marked = append(marked, page)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{extend, migrate, own}, marked); diff != "" {
		t.Errorf("pages that are followed, and pages with marked blocks (-followed +marked):\n%s", diff)
	}
}

func TestMigrateATestCluster(t *testing.T) {
	r := newReader(t)
	kubeconfig, _ := practice(t, r.root)
	r.env = append(r.env, "KUBECONFIG="+kubeconfig)
	r.follow(t, migrate)
	if path := os.Getenv("PICTURE"); path != "" {
		if err := os.WriteFile(path, []byte(picture(r.recorded.String())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// This one needs no cluster.
func TestExtendAMachine(t *testing.T) {
	newReader(t).follow(t, extend)
}

func TestYourOwnController(t *testing.T) {
	r := newReader(t)
	kubeconfig, p := practice(t, r.root, "--manager-arg=--allow-http-host=127.0.0.1:8099")
	r.env = append(r.env, "KUBECONFIG="+kubeconfig)
	killManager(t, p)
	t.Cleanup(r.endProcesses)
	r.follow(t, own)
}

// endProcesses ends what a page has started in the background, where it did not come to its end.
func (r *reader) endProcesses() {
	files, _ := filepath.Glob(filepath.Join(r.root, "bin", "my-controller", "*.pid")) // the pattern is none that fails
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			_ = exec.Command("kill", strings.TrimSpace(string(data))).Run() // it may have ended
		}
	}
}

// What a page shows of a file is the file.
func TestThePageShowsTheMachine(t *testing.T) {
	r := newReader(t)
	page, err := os.ReadFile(filepath.Join(r.root, own))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.ReadFile(filepath.Join(r.root, "docs/tutorials/your-own-controller/maintenance.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	shown, _, _ := strings.Cut(rest, "```\n")
	if diff := cmp.Diff(string(machine), shown); diff != "" {
		t.Errorf("maintenance.yaml (-file +page):\n%s", diff)
	}
}

func newReader(t *testing.T) *reader {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("PATH=%s/bin:%s/bin/tools:%s", root, root, os.Getenv("PATH"))
	return &reader{root: root, env: append(os.Environ(), path, "TERM=xterm-256color")}
}

// practice starts what `make practice` starts, and answers its kubeconfig.
func practice(t *testing.T, root string, args ...string) (string, *harness.Process) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "demo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	p := harness.ProcessForTest(t, harness.Program{
		Name: "practice", Path: program, Args: append([]string{"--practice", "--objects=240"}, args...), Dir: root, LogDir: t.TempDir(),
	})
	t.Cleanup(func() {
		if err := p.Stop(stopLimit); err != nil {
			t.Errorf("Ctrl-C ends the practice cluster: %v", err)
		}
	})
	kubeconfig := ""
	harness.Eventually(t, "the practice cluster", func() error {
		if err := p.Alive(); err != nil {
			return err
		}
		text := p.Tail(1000)
		if m := exported.FindStringSubmatch(text); managerPID.MatchString(text) && m != nil {
			kubeconfig = m[1]
			return nil
		}
		return fmt.Errorf("it said %q", p.Tail(1))
	})
	return kubeconfig, p
}

var (
	managerPID = regexp.MustCompile(`The manager is process (\d+)`)
	againPID   = regexp.MustCompile(`the manager was started again, as process (\d+)`)
)

// killManager kills the manager of a practice cluster: the cluster goes on, with a new one that has the same arguments.
func killManager(t *testing.T, p *harness.Process) {
	t.Helper()
	if err := exec.Command("kill", "-9", managerPID.FindStringSubmatch(p.Tail(1000))[1]).Run(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "another manager", func() error {
		if err := p.Alive(); err != nil {
			return err
		}
		m := againPID.FindStringSubmatch(p.Tail(1000))
		if m == nil {
			return fmt.Errorf("it said %q", p.Tail(1))
		}
		line, err := os.ReadFile("/proc/" + m[1] + "/cmdline")
		if err == nil && !strings.Contains(string(line), "--allow-http-host=127.0.0.1:8099") {
			err = harness.Permanent(fmt.Errorf("it runs as %q", line))
		}
		return err
	})
}

// follow runs the blocks of a page, each in a shell of its own in the root of the
// repository; the first that fails ends the test.
func (r *reader) follow(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.root, page))
	if err != nil {
		t.Fatal(err)
	}
	blocks := runnable.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 3 {
		t.Fatalf("%s has %d blocks that run: are they still marked?", page, len(blocks))
	}
	for _, m := range blocks {
		out, err := r.shell(t, m[2])
		t.Logf("%s\n%s", m[2], out)
		if code := exit(m[1]); err != nil && !strings.HasSuffix(err.Error(), "exit status "+code) || err == nil && code != "0" {
			t.Fatalf("%s: this block: %v\n%s\nsaid:\n%s", page, err, m[2], out)
		}
		for line := range strings.Lines(m[3]) {
			if !strings.Contains("\n"+string(out), "\n"+line) {
				t.Errorf("%s: the page shows %q below this block:\n%s\nit said:\n%s", page, line, m[2], out)
			}
		}
		if strings.Contains(m[1], "picture") {
			r.record(m[2], out)
		}
	}
}

// record keeps a block and what it said for the picture.
func (r *reader) record(block string, out []byte) {
	prompt := "$"
	for line := range strings.Lines(block) {
		fmt.Fprintf(&r.recorded, "\x1b[1;32m%s\x1b[0m \x1b[1m%s\x1b[0m\n", prompt, strings.TrimSuffix(line, "\n"))
		if prompt = "$"; strings.HasSuffix(line, "\\\n") {
			prompt = ">" // as a shell does
		}
	}
	r.recorded.Write(out)
	r.recorded.WriteString("\n")
}

// exit is the code that a block must end with, by the first line of it: exit=4.
func exit(words string) string {
	for word := range strings.FieldsSeq(words) {
		if code, ok := strings.CutPrefix(word, "exit="); ok {
			return code
		}
	}
	return "0"
}

// shell runs a block; for a picture on a terminal, so that there is colour.
func (r *reader) shell(t *testing.T, block string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "block.sh")
	if err := os.WriteFile(file, []byte("set -euo pipefail\n"+block), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"timeout", blockLimit, "bash", file}
	if os.Getenv("PICTURE") != "" {
		args = []string{"timeout", blockLimit, "script", "-qefc", "stty cols 110 rows 40; bash " + file, "/dev/null"}
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = r.root, r.env
	return cmd.CombinedOutput()
}
