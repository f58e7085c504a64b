//go:build race

package bridge_test

// burst is how much comes at once: less with the race detector, which makes JSON slow. make test runs tests with
// Burst in their names without it, too.
const burst = 50
