// Package container plays a container that runs an MCP server over its standard
// input and output: the process lives on when nobody is attached, and is started
// again when it ends.
//
// It knows no Kubernetes.
package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
)

// Echo builds test/support/mcp/echoserver and returns its path.
func Echo(t testing.TB) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "echoserver")
	cmd := exec.Command("go", "build", "-o", path, "./test/support/mcp/echoserver")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the echo server: %v\n%s", err, out)
	}
	return path
}

// Container is a running server.
type Container struct {
	command []string

	mu       sync.Mutex
	stopped  bool
	process  *os.Process
	stdin    io.WriteCloser
	attached map[*stream]struct{}
	starts   int
	done     sync.WaitGroup
}

// Run starts the command, and ends it with the test.
func Run(t testing.TB, command ...string) *Container {
	t.Helper()
	c := &Container{command: command, attached: map[*stream]struct{}{}}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		c.stopped = true
		c.mu.Unlock()
		c.Kill()
		c.done.Wait()
	})
	return c
}

// Kill ends the process at once. Another one is started.
func (c *Container) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.process.Kill() // it may have ended by itself
}

// Starts is how often the process was started.
func (c *Container) Starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

func (c *Container) start() error {
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.stdin = cmd.Process, stdin
	c.starts++
	c.done.Go(func() {
		_, _ = io.Copy(writer(c.print), stdout) // until the process ends
		_ = cmd.Wait()                          // it was killed
		c.ended()
	})
	return nil
}

// ended ends all streams, and starts the process again.
func (c *Container) ended() {
	c.mu.Lock()
	for s := range c.attached {
		_ = s.out.Close()
		delete(c.attached, s)
	}
	stopped := c.stopped
	c.mu.Unlock()
	if !stopped {
		_ = c.start() // the next attachment tells
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// print gives output to all that are attached; without any it is lost.
func (c *Container) print(p []byte) {
	c.mu.Lock()
	var all []*stream
	for s := range c.attached {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		_, _ = s.out.Write(p) // whoever has closed is told nothing
	}
}

// stream is one attachment.
type stream struct {
	*io.PipeReader
	out       *io.PipeWriter
	container *Container
}

// Open attaches to the process, as attach.Opener does.
func (c *Container) Open(context.Context) (io.ReadWriteCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the container has stopped")
	}
	r, w := io.Pipe()
	s := &stream{PipeReader: r, out: w, container: c}
	c.attached[s] = struct{}{}
	return s, nil
}

func (s *stream) Write(p []byte) (int, error) {
	s.container.mu.Lock()
	in := s.container.stdin
	s.container.mu.Unlock()
	return in.Write(p)
}

func (s *stream) Close() error {
	s.container.mu.Lock()
	delete(s.container.attached, s)
	s.container.mu.Unlock()
	return s.PipeReader.Close()
}
