package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tailLines is how much of a log is shown when something went wrong.
const tailLines = 40

// Program says what to run.
type Program struct {
	// Name is the name of its log file, without ".log".
	Name string
	// Path is the executable, see Binary.
	Path string
	Args []string
	// Env is added to the environment of this program.
	Env []string
	// Dir is its working directory; that of this program if empty.
	Dir string
	// LogDir is where its output goes, usually Cluster.LogDir. A program that is
	// started again under the same name continues its log.
	LogDir string
	// Test is who runs it, for the table of costs; empty: not known.
	Test string
}

// Process is a running, or ended, program.
type Process struct {
	// Log is the path of its output.
	Log string

	name string
	pid  int
	// ended is closed once the process has ended; err is not written after that.
	ended chan struct{}
	err   error
}

// StartProcess starts a program, in a process group of its own. It is killed when
// this program ends, in whatever way.
func StartProcess(p Program) (*Process, error) {
	log := filepath.Join(p.LogDir, p.Name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Dir = append(os.Environ(), p.Env...), p.Dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	process := &Process{Log: log, name: p.Name, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// To the kernel the parent is the thread that started the process, and
		// Pdeathsig is sent when that ends: keep the thread as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = out.Close() }() // the process wrote, not we
		err := cmd.Start()
		if err == nil {
			process.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			begun := time.Now()
			process.err = cmd.Wait()
			spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			Cost{Test: p.Test, What: "program " + p.Name, Took: time.Since(begun), CPU: CPUTimes{p.Name: spent}}.Write()
			close(process.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return process, nil
}

// ProcessForTest is StartProcess for the duration of a test: at its end what
// still runs is killed, and if the test failed the end of the log is shown.
func ProcessForTest(t testing.TB, p Program) *Process {
	t.Helper()
	p.Test = t.Name()
	process, err := StartProcess(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("the end of what %s said:\n%s", p.Name, process.Tail(tailLines))
		}
	})
	return process
}

// PID is its process id, which may be another's once the process has ended.
func (p *Process) PID() int { return p.pid }

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Alive is nil while the process runs, then an error with the end of its log. It
// is permanent: Eventually does not wait any longer.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		result := "exit code 0"
		if p.err != nil {
			result = p.err.Error()
		}
		return Permanent(fmt.Errorf("%s has ended (%s); the end of %s:\n%s", p.name, result, p.Log, p.Tail(tailLines)))
	default:
		return nil
	}
}

// Kill sends SIGKILL to the process and its descendants, and waits for its end.
// It may be called twice.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// Stop asks the process to end (SIGTERM), kills it if it has not after grace, and
// returns how it ended: nil for exit code 0. It may be called twice.
func (p *Process) Stop(grace time.Duration) error {
	if p.Alive() != nil {
		return p.err
	}
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("stop %s: still running %s after SIGTERM: killed", p.name, grace)
	}
}

// signal reaches the whole group. One that has ended is left alone: its number
// may be somebody else's by now.
func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(-p.pid, s) // it may just have ended
	}
}

// Tail is the last lines that were written to the log.
func (p *Process) Tail(lines int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return errors.Join(errors.New("no log"), err).Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// FreeAddress is one of this machine that nobody listens on at this moment.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
