//go:build race

package bridge_test

// burst is how much comes at once. The race detector makes JSON slow; make test runs tests of much of it without it, too, by
// Burst in their names.
const burst = 50
