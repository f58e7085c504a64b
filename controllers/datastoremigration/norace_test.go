//go:build !race

package datastoremigration

const raceDetector = false
