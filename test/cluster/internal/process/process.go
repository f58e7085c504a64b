// Package process starts servers that outlive the program that started them,
// and ends them again by their recorded process id. It knows no Kubernetes.
//
// A process id alone proves nothing: it may have been given to somebody else
// since. A process counts as ours only if its command line or environment
// names the home directory it was started for. This needs Linux's /proc.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// homeVariable marks, in its environment, the home that a process belongs to.
const homeVariable = "PHASEGATE_CLUSTER"

// Home is the directory that a group of processes belongs to: ids are kept in
// its pids folder and output in its logs folder. It is an absolute path.
type Home string

// Child is a process started by this program.
type Child struct {
	// Name is the name that the process is recorded under.
	Name string
	// Exited is closed once the process has ended.
	Exited chan struct{}
}

// PidFile is where the id of the named process is recorded.
func (h Home) PidFile(name string) string { return filepath.Join(string(h), "pids", name+".pid") }

// LogFile is where the output of the named process goes.
func (h Home) LogFile(name string) string { return filepath.Join(string(h), "logs", name+".log") }

// gcVariable is the GOGC of what is started here, and of nothing else: tests that are short of CPU, of which
// the collectors of the servers take a fifth, give them memory for it.
const gcVariable = "CLUSTER_GOGC"

// Start runs a program in a session of its own, so that neither a Ctrl-C nor
// the end of this program reaches it, and records its id. Output is appended
// to the log. The caller makes sure that no process of that name is running.
func (h Home) Start(name, binary string, args ...string) (*Child, error) {
	for _, file := range []string{h.PidFile(name), h.LogFile(name)} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	log, err := os.OpenFile(h.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the process has a handle of its own
	command := exec.Command(binary, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), homeVariable+"="+string(h))
	if percent := os.Getenv(gcVariable); percent != "" {
		command.Env = append(command.Env, "GOGC="+percent)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	pid := strconv.Itoa(command.Process.Pid)
	if err := os.WriteFile(h.PidFile(name), []byte(pid+"\n"), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("record %s: %w", name, err), command.Process.Kill())
	}
	child := &Child{Name: name, Exited: make(chan struct{})}
	go func() {
		defer close(child.Exited)
		_ = command.Wait() // why it ended is in its log
	}()
	h.shown(child)
	return child, nil
}

// shown waits until /proc shows whose the process is, or that it ended: exec is known to have been done some
// microseconds before the new program has a command line and an environment.
func (h Home) shown(child *Child) {
	for h.Running(child.Name) == 0 {
		select {
		case <-child.Exited:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// Recorded lists the names of all processes recorded, running or not.
func (h Home) Recorded() []string {
	files, _ := filepath.Glob(h.PidFile("*")) // fails only on a bad pattern
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".pid"))
	}
	return names
}

// Running returns the id of the named process, or 0 if it is not running.
func (h Home) Running(name string) int {
	text, err := os.ReadFile(h.PidFile(name))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0
	}
	// Both are empty for a zombie, and unreadable for a stranger's process.
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if !h.owns(line, environ) {
		return 0
	}
	return pid
}

// owns tells by command line and environment, as /proc shows them, whether a
// process belongs here.
func (h Home) owns(line, environ []byte) bool {
	if bytes.Contains(line, []byte(string(h)+"/")) {
		return true
	}
	mark := []byte(homeVariable + "=" + string(h))
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(entry, mark) {
			return true
		}
	}
	return false
}

// Stop ends the named processes and forgets them: it asks politely, and kills
// what still runs after grace. Processes that have ended already, or that are
// not ours, are only forgotten, so Stop may be called twice.
func (h Home) Stop(grace time.Duration, names ...string) error {
	h.signal(syscall.SIGTERM, names)
	if !h.wait(grace, names) {
		h.signal(syscall.SIGKILL, names)
		if !h.wait(10*time.Second, names) {
			return fmt.Errorf("stop %s: still running after SIGKILL", strings.Join(names, ", "))
		}
	}
	for _, name := range names {
		if err := os.Remove(h.PidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	return nil
}

// signal sends to those that run; one that ends meanwhile is no error.
func (h Home) signal(signal syscall.Signal, names []string) {
	for _, name := range names {
		if pid := h.Running(name); pid != 0 {
			_ = syscall.Kill(pid, signal)
		}
	}
}

// wait reports whether all the named processes have ended within limit.
func (h Home) wait(limit time.Duration, names []string) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		running := false
		for _, name := range names {
			running = running || h.Running(name) != 0
		}
		if !running || time.Now().After(deadline) {
			return !running
		}
	}
}

// Tail returns the last lines that the named process has written.
func (h Home) Tail(name string, lines int) string {
	text, err := os.ReadFile(h.LogFile(name))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
