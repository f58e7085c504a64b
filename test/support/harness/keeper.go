package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// untilAlone waits for the end of its input, which is ours to write: it comes
// when we close it, and when this program ends in whatever way (a panic, the
// timeout of go test, SIGKILL), which no deferred function survives.
const untilAlone = `cat >/dev/null; exec "$0" down --dir "$1"`

// keep starts a process that takes the cluster in home down as soon as this
// program has ended or end was called. end waits for it, and may be called twice.
func keep(launcher, home, log string) (end func() error, err error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep the cluster: %w", err)
	}
	defer func() { _ = out.Close() }() // the process writes, not we
	cmd := exec.Command("sh", "-c", untilAlone, launcher, home)
	// A file, not a pipe: nobody may be there to read from it.
	cmd.Stdout, cmd.Stderr = out, out
	// A session of its own: Ctrl-C must not end it before the cluster.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("keep the cluster: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("keep the cluster: %w", err)
	}
	return func() error {
		if err := input.Close(); errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err := cmd.Wait(); err != nil {
			said, _ := os.ReadFile(log) // the error is told anyway
			return fmt.Errorf("%s down --dir %s: %w:\n%s", launcher, home, err, said)
		}
		return nil
	}, nil
}
