// Package lint finds what a run of a machine could come to, before there is one: effects that leak, ways back from a
// point of no return, phases that sleep or run for ever, exits that are never taken.
//
// It imports program and what is below it, and runs nothing. Begin with Check, which names what is looked for; flow.go
// is which effects may be held where, from which most findings follow.
package lint
