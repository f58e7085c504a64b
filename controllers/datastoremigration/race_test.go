//go:build race

package datastoremigration

// raceDetector makes the compression of a backup ten times as slow.
const raceDetector = true
