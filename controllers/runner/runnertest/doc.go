// Package runnertest proves that an action may be called again: after it was done,
// and after a crash before or after each of its writes. It is for the tests of
// anybody's actions, built-in or not.
//
// It calls the action as a pass of the runner does (runner.Once) and knows neither
// what it does nor on which API server: hand it a client of a real one where the
// server's answers matter, or the fake client of controller-runtime.
package runnertest
