//go:build race

package bridge_test

// The race detector makes JSON slow. Tests of much of it do less with it, or none; make test runs them without it,
// too, by Burst or SlowReader in their names.
const (
	raceDetector = true
	// burst is how much comes at once.
	burst = 50
)
