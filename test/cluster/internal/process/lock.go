package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock waits until no other program holds the directory, which must exist, and
// calls waiting first if it has to. The kernel lets go of the lock when this
// program ends, however it ends.
func Lock(dir string, waiting func()) (unlock func(), err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		waiting()
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		_ = file.Close() // only read
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = file.Close() }, nil
}
