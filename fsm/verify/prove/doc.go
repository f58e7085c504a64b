// Package prove tries everything that can happen to one object of a machine, and finds an invariant that does not hold,
// with the shortest path to that state.
//
// It imports fsm, whose engine it drives, and program, and has no model of its own. Begin with Prove; way.go is one run
// under one series of choices, check.go checks every state.
package prove
