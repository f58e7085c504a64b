// Package prove tries everything that can happen to one object of a machine, and finds an invariant that does not hold
// somewhere, with the shortest way there.
//
// It imports fsm, whose engine it drives, and program; it has no model of its own of what a run does. Begin with Prove;
// way.go is one run under one series of choices, check.go what is looked at in every state.
package prove
