package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// The servers of a cluster, by the names that Server knows.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
)

// reviveLimit is how long a server may take to answer after it was started again.
const reviveLimit = 2 * time.Minute

// Server is a process of a cluster that this program has started.
type Server struct {
	// PID is its process id.
	PID int

	name, home string
	args, env  []string
}

// Server finds a running server of the cluster by what its launcher has recorded. A
// cluster that is not ours has none.
func (c *Cluster) Server(name string) (*Server, error) {
	s := &Server{name: name, home: filepath.Dir(c.Kubeconfig)}
	text, err := os.ReadFile(s.pidFile())
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if s.PID, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return nil, fmt.Errorf("find %s: %s: %w", name, s.pidFile(), err)
	}
	if s.args, err = s.proc("cmdline"); err != nil {
		return nil, err
	}
	s.env, err = s.proc("environ")
	return s, err
}

func (s *Server) pidFile() string { return filepath.Join(s.home, "pids", s.name+".pid") }

// proc reads a list of texts that the kernel has of the process.
func (s *Server) proc(file string) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.PID, file))
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", s.name, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("look at %s: process %d has ended", s.name, s.PID)
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00"), nil
}

// Flag is the value of one of its flags: "etcd-servers".
func (s *Server) Flag(name string) (string, error) {
	for _, arg := range s.args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s was started without --%s", s.name, name)
}

// Freeze suspends the process for a while, as a virtual machine that is moved.
func (s *Server) Freeze(d time.Duration) error {
	if err := s.Suspend(); err != nil {
		return err
	}
	<-time.After(d)
	return s.Resume()
}

// Suspend stops the process until Resume.
func (s *Server) Suspend() error {
	if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspend %s: %w", s.name, err)
	}
	return nil
}

// Resume lets a process go on that was stopped; one that runs does not notice.
func (s *Server) Resume() error {
	if err := syscall.Kill(s.PID, syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume %s: %w", s.name, err)
	}
	return nil
}

// Kill ends the process as a power cut does, and returns when it has ended.
func (s *Server) Kill(ctx context.Context) error {
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	return Await(ctx, s.name+" to end", reviveLimit, func(context.Context) error {
		if !s.ended() {
			return errors.New("it still runs")
		}
		return nil
	})
}

// ended is true of a zombie, too, once it is alone: while another thread of it has not ended, its ports are taken.
func (s *Server) ended() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.PID)) // the pattern is good
	return !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		at := bytes.LastIndexByte(stat, ')') + len(") ")
		return err == nil && at < len(stat) && stat[at] != 'Z' && stat[at] != 'X'
	})
}

// Revive starts the process again, after Kill, as it was started before, for the same
// launcher to end it. Flags that are given win over those that it had, from now on.
func (s *Server) Revive(flags ...string) error {
	s.args = append(s.args, flags...)
	log, err := os.OpenFile(filepath.Join(s.home, "logs", s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s again: %w", s.name, err)
	}
	defer func() { _ = log.Close() }() // the process has a handle of its own
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s again: %w", s.name, err)
	}
	s.PID = cmd.Process.Pid
	go func() { _ = cmd.Wait() }() // why it ended is in its log
	if err := os.WriteFile(s.pidFile(), []byte(strconv.Itoa(s.PID)+"\n"), 0o644); err != nil {
		return errors.Join(fmt.Errorf("record %s: %w", s.name, err), cmd.Process.Kill())
	}
	return nil
}

// AwaitReady waits until the API server says that it is ready, which includes etcd. A server that was revived,
// and has ended since, is revived again, as by a kubelet: an API server gives up when it starts too slowly.
func (c *Cluster) AwaitReady(ctx context.Context, revived *Server) error {
	asking, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	return Await(ctx, "the API server to be ready", reviveLimit, func(ctx context.Context) error {
		if revived.ended() {
			if err := revived.Revive(); err != nil {
				return err
			}
		}
		return askReady(ctx, asking, c.Config.Host)
	})
}

// askReady is an error until an API server says that it is ready.
func askReady(ctx context.Context, asking *http.Client, host string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := asking.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}
