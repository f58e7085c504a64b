package process

import (
	"fmt"
	"os"
	"syscall"
)

// Lock waits until no other program holds the directory, which must exist. The
// kernel lets go of it when this program ends, however it ends.
func Lock(dir string) (unlock func(), err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close() // only read
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = file.Close() }, nil
}
