package controlplane

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// settle is how long a program started by Run is watched: one that was given a
// wrong flag, or that cannot reach the API server, has ended by then.
const settle = time.Second

// Run starts a program as part of the live cluster in dir, so that Down ends
// it too, in place of the one that runs there under the same name.
func Run(dir, name string, out io.Writer, binary string, args ...string) error {
	l, unlock, err := open(dir, out)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no cluster in %s: start one with make cluster-up", dir)
	}
	if err != nil {
		return err
	}
	defer unlock()
	state, found, err := examine(l)
	if err != nil {
		return err
	}
	if state != live {
		return fmt.Errorf("no cluster runs in %s: start one with make cluster-up", l.Home)
	}
	if slices.Contains(found.Servers, name) {
		return fmt.Errorf("%s is a server of the cluster: name the program otherwise", name)
	}
	replaced := l.Running(name) != 0
	if err := l.Stop(10*time.Second, name); err != nil {
		return err
	}
	child, err := l.Start(name, binary, args...)
	if err != nil {
		return err
	}
	select {
	case <-child.Exited:
		return fmt.Errorf("%s ended at once; the end of %s:\n%s", name, l.LogFile(name), l.Tail(name, 15))
	case <-time.After(settle):
	}
	verb := "started"
	if replaced {
		verb = "restarted"
	}
	fmt.Fprintf(out, "%s %s, process %d, log %s\n", verb, name, l.Running(name), l.LogFile(name))
	return nil
}
