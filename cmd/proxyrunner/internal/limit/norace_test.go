//go:build !race

package limit_test

// clients are as many as the report of this defect had.
const (
	clients      = 40
	raceDetector = false
)
