// Package runnertest tests that an action is idempotent: it calls the action again after success, and after a crash
// before or after each of its writes.
//
// It calls the action as the runner does (runner.Once), and knows neither the action nor the API server. Give it a
// client of a real API server if the server's answers matter, or the fake client of controller-runtime.
package runnertest
