// Command testtimes runs go test with its arguments, and prints at the end where the time went: what was compiled, what
// each package and each test took, what clusters and programs computed, and what was waited for.
//
//	go run ./hack/testtimes [-top 30] -- -p 2 ./test/e2e
//
// Its exit code is that of go test.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// run, as the first argument, makes this the program that go test runs each test program with.
const run = "-run-test-program"

func main() {
	if len(os.Args) > 2 && os.Args[1] == run {
		os.Exit(runTests(os.Args[2:]))
	}
	top := flag.Int("top", 30, "`lines` of each table")
	flag.Parse()
	code, err := measure(*top, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testtimes:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// runTests runs a test program, and notes what it and the programs that it has waited for have computed.
func runTests(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	begun := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	harness.Cost{What: "tests", Took: time.Since(begun), CPU: harness.CPUTimes{"tests": spent}}.Write()
	return cmd.ProcessState.ExitCode()
}

func measure(top int, args []string) (int, error) {
	dir, err := os.MkdirTemp("", "testtimes-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	graph, costs := filepath.Join(dir, "graph.json"), filepath.Join(dir, "costs.json")
	cmd := exec.Command("go", append([]string{"test", "-json", "-debug-actiongraph=" + graph, "-exec", self + " " + run}, args...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), harness.CostsVar+"="+costs), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	t := tables{top: top, packages: map[string]*pack{}, tests: map[string]time.Duration{}, clusters: map[string]harness.CPUTimes{}, waits: map[string]time.Duration{}}
	t.readEvents(out)
	failure := cmd.Wait()
	if err := errors.Join(readLines(graph, t.readGraph), readLines(costs, t.readCosts)); err != nil {
		return 1, err
	}
	t.print(os.Stdout)
	if exit := (*exec.ExitError)(nil); failure != nil && !errors.As(failure, &exit) {
		return 1, failure
	}
	return cmd.ProcessState.ExitCode(), nil
}

type tables struct {
	top      int
	packages map[string]*pack         // by the last parts of their paths
	tests    map[string]time.Duration // by package and name
	clusters map[string]harness.CPUTimes
	waits    map[string]time.Duration // by package and what
	compiled [2]compiled              // ours, and others'
}

type pack struct {
	wall, link, tests, servers, start time.Duration
	clusters                          int
}

type compiled struct {
	n   int
	cpu time.Duration
}

// module is the prefix of our packages.
const module = "github.com/phasegate/phasegate/"

func (t *tables) pack(path string) *pack {
	path = short(path)
	if t.packages[path] == nil {
		t.packages[path] = &pack{}
	}
	return t.packages[path]
}

func short(path string) string {
	root, _ := harness.Root()
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, root+"/"), module), ".test")
}

// readEvents passes on what tests print, and notes what they took.
func (t *tables) readEvents(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			fmt.Println(lines.Text())
			continue
		}
		took := time.Duration(event.Elapsed * float64(time.Second))
		switch {
		case event.Action == "output" && !strings.HasPrefix(event.Output, "=== ") && !strings.HasPrefix(strings.TrimSpace(event.Output), "--- PASS"):
			fmt.Print(event.Output)
		case event.Action != "pass" && event.Action != "fail":
		case event.Test == "":
			t.pack(event.Package).wall = took
		case !strings.Contains(event.Test, "/"):
			t.tests[short(event.Package)+" "+event.Test] = took
		}
	}
}

// readLines calls read with a file, if it is there.
func readLines(path string, read func(*json.Decoder) error) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if err := read(json.NewDecoder(file)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// readGraph notes what the go command has compiled and linked.
func (t *tables) readGraph(from *json.Decoder) error {
	var actions []struct {
		Mode, Package   string
		CmdUser, CmdSys time.Duration
	}
	if err := from.Decode(&actions); err != nil {
		return err
	}
	for _, a := range actions {
		spent := a.CmdUser + a.CmdSys
		switch {
		case spent == 0:
		case a.Mode == "link":
			t.pack(a.Package).link += spent
		default:
			whose := &t.compiled[0]
			if !strings.HasPrefix(a.Package, module) {
				whose = &t.compiled[1]
			}
			whose.n++
			whose.cpu += spent
		}
	}
	return nil
}

func (t *tables) readCosts(from *json.Decoder) error {
	for {
		var c harness.Cost
		if err := from.Decode(&c); err != nil {
			return err
		}
		p := t.pack(c.Package)
		switch {
		case c.What == "tests":
			p.tests += c.CPU.Sum()
		case c.What == "cluster":
			p.clusters++
			p.start += c.Start
			p.servers += c.CPU.Sum()
			t.addCPU(short(c.Package)+" "+cmp.Or(c.Test, "(shared)"), c.CPU)
		case strings.HasPrefix(c.What, "program "):
			t.addCPU(short(c.Package)+" "+cmp.Or(c.Test, "(shared)"), c.CPU)
		default:
			t.waits[short(c.Package)+" "+c.What] += c.Took
		}
	}
}

func (t *tables) addCPU(key string, spent harness.CPUTimes) {
	if t.clusters[key] == nil {
		t.clusters[key] = harness.CPUTimes{}
	}
	for program, took := range spent {
		t.clusters[key][program] += took
	}
}

func (t *tables) print(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(table, format+"\n", args...) } // it ends with the program
	line("\ncompiled: %d of ours, CPU %s; %d of others, CPU %s", t.compiled[0].n, s(t.compiled[0].cpu), t.compiled[1].n, s(t.compiled[1].cpu))
	line("\nPACKAGE\tWALL\tCPU LINKING\tCPU TESTS AND PROGRAMS\tCPU SERVERS\tCLUSTERS\tTHEIR START")
	var sum pack
	for _, name := range sorted(t.packages, t.top, func(p *pack) time.Duration { return p.link + p.tests + p.servers }) {
		p := t.packages[name]
		line("%s\t%s\t%s\t%s\t%s\t%d\t%s", name, s(p.wall), s(p.link), s(p.tests), s(p.servers), p.clusters, s(p.start))
	}
	for _, p := range t.packages {
		sum.wall, sum.link, sum.tests, sum.servers, sum.start, sum.clusters = sum.wall+p.wall, sum.link+p.link, sum.tests+p.tests, sum.servers+p.servers, sum.start+p.start, sum.clusters+p.clusters
	}
	line("all %d\t%s\t%s\t%s\t%s\t%d\t%s", len(t.packages), s(sum.wall), s(sum.link), s(sum.tests), s(sum.servers), sum.clusters, s(sum.start))
	line("\nTEST\tWALL")
	for _, name := range sorted(t.tests, t.top, func(d time.Duration) time.Duration { return d }) {
		line("%s\t%s", name, s(t.tests[name]))
	}
	line("\nCLUSTERS AND PROGRAMS OF\tCPU")
	for _, name := range sorted(t.clusters, t.top, harness.CPUTimes.Sum) {
		spent := t.clusters[name]
		parts := sorted(spent, 5, func(d time.Duration) time.Duration { return d })
		for i, program := range parts {
			parts[i] = program + " " + s(spent[program])
		}
		line("%s\t%s\t%s", name, s(spent.Sum()), strings.Join(parts, ", "))
	}
	line("\nWAIT\tIN ALL")
	for _, what := range sorted(t.waits, t.top, func(d time.Duration) time.Duration { return d }) {
		line("%s\t%s", what, s(t.waits[what]))
	}
	_ = table.Flush() // as above
}

// sorted are the keys of the n largest values.
func sorted[V any](all map[string]V, n int, by func(V) time.Duration) []string {
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(by(all[b]), by(all[a])), strings.Compare(a, b)) })
	return keys[:min(n, len(keys))]
}

func s(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
