package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CostsVar is the environment variable that names a file to which each cluster, each program and each wait adds a Cost at
// its end: see hack/testtimes. Nothing is written where it is not set.
const CostsVar = "TEST_COSTS"

// Cost is what something has cost a test.
type Cost struct {
	// Package is the directory of the test, Test its name; empty: not known, as of a cluster that tests share.
	Package string
	Test    string `json:",omitempty"`
	// What is "cluster", "program NAME" or "wait for WHAT".
	What string
	Took time.Duration
	// Start is how long a cluster took to come up.
	Start time.Duration `json:",omitempty"`
	// CPU is by the names of programs.
	CPU CPUTimes `json:",omitempty"`
}

// longWait is what is worth a line.
const longWait = time.Second

// Write adds it to the file; what it cannot write it says on standard error.
func (c Cost) Write() {
	path := os.Getenv(CostsVar)
	if path == "" {
		return
	}
	c.Package, _ = os.Getwd() // go test runs each package in its directory
	line, err := json.Marshal(c)
	if err == nil {
		err = appendLine(path, line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write what the test costs:", err)
	}
}

// appendLine writes at once: several processes share the file.
func appendLine(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	if end := file.Close(); err == nil {
		err = end
	}
	return err
}

// CPUTimes is what programs have computed, by their names.
type CPUTimes map[string]time.Duration

// CPUOf is what all processes with dir on their command line have computed so far: the servers of the cluster in dir, and
// the manager. Wall time is for an idle machine; on a shared one this tells who did the work.
func CPUOf(dir string) CPUTimes {
	all := CPUTimes{}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, p := range processes {
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue // it has ended, or is none of ours
		}
		if stat, err := os.ReadFile(filepath.Join(p, "stat")); err == nil {
			program, _, _ := bytes.Cut(line, []byte{0})
			all[filepath.Base(string(program))] += ticksOf(string(stat))
		}
	}
	return all
}

// CPUOfProcess is what one process has computed so far.
func CPUOfProcess(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return ticksOf(string(stat)), nil
}

// Since is what was computed after before.
func (c CPUTimes) Since(before CPUTimes) CPUTimes {
	spent := maps.Clone(c)
	for program := range spent {
		spent[program] -= before[program]
	}
	return spent
}

// Sum is what all have computed.
func (c CPUTimes) Sum() (sum time.Duration) {
	for _, took := range c {
		sum += took
	}
	return sum
}

// clockTick is USER_HZ, in which Linux counts the time of processes for everybody.
const clockTick = 10 * time.Millisecond

// ticksOf reads user and system time: the 14th and 15th field, of which the second is a name that may hold anything.
func ticksOf(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick
}
