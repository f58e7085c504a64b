package harness

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is one cluster for all tests of a package: each works on objects of its
// own. Main must be what TestMain calls, which ends it.
type Shared struct {
	// Start starts the cluster; it is called once, by the first test that asks.
	Start func() (*Cluster, error)
	// Ended is called after the tests; nil: there is nothing more to do.
	Ended func() error

	once    sync.Once
	cluster *Cluster
	err     error
}

// Cluster answers the cluster, and ends the test where it could not be started; -short skips the test.
func (s *Shared) Cluster(t *testing.T) *Cluster {
	t.Helper()
	notShort(t)
	s.once.Do(func() { s.cluster, s.err = s.Start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Main runs the tests, stops the cluster if there is one, and ends the program.
func (s *Shared) Main(m *testing.M) {
	code := m.Run()
	if s.Ended != nil {
		if err := s.Ended(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if s.cluster != nil {
		if err := s.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the cluster:", err)
			code = 1
		}
	}
	os.Exit(code)
}
