//go:build race

package limit_test

// clients are fewer with the race detector, which makes JSON slow; make test runs TestMemoryOfClientsThatStop without
// it, too.
const (
	clients      = 4
	raceDetector = true
)
