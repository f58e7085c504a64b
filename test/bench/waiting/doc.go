// Package waiting has a test of many objects of a machine that is nothing but a file, while they wait: a look that
// changes nothing writes nothing, and 500 wake-ups at once use up nothing.
//
// make test-all runs it with a few objects, make waiting with 5,000.
package waiting
