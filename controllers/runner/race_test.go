//go:build race

package runner_test

// raceDetector allocates, too.
const raceDetector = true
