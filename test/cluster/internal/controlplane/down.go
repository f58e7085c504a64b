package controlplane

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// grace is how long a server may take to end. Its data is about to be removed,
// so nothing is gained by waiting for one that drains.
const grace = 2 * time.Second

// Down ends the cluster in dir, with everything else that was started there,
// and removes what it made. Nothing to end is no error: it may be called twice.
func Down(dir string, out io.Writer) error {
	l, unlock, err := open(dir, out)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "no cluster in %s\n", dir)
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	state, _, err := examine(l)
	if err != nil {
		return err
	}
	if state == foreign {
		return fmt.Errorf("%s holds files that are not a cluster's: nothing was removed", l.Home)
	}
	if err := clearAway(l); err != nil {
		return err
	}
	if err := os.Remove(string(l.Home)); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("remove %s: %w", l.Home, err)
	}
	fmt.Fprintf(out, "ended the cluster in %s\n", l.Home)
	return nil
}

// clearAway ends all processes of a home and removes what its cluster made. Files
// of other origin are left, and so is the home, which the caller has locked.
func clearAway(l layout) error {
	if err := stopAll(l); err != nil {
		return err
	}
	for _, path := range l.made() {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear %s: %w", l.Home, err)
		}
	}
	return nil
}

// stopAll ends first what uses the API server, then it, then what it uses: a
// server that cannot reach the one below it waits for it instead of ending.
func stopAll(l layout) error {
	base := []string{apiServer, etcd}
	users := slices.DeleteFunc(l.Recorded(), func(name string) bool { return slices.Contains(base, name) })
	return errors.Join(
		l.Stop(grace, users...),
		l.Stop(grace, apiServer),
		l.Stop(grace, etcd),
	)
}
