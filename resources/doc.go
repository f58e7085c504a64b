// Package resources knows the Calico kinds: their names in both API groups, how a v1 object becomes a
// v3 object without losing anything, and when two v3 objects mean the same.
//
// Everything here is a pure function of its arguments. The package must not know the API server
// (package copier reads and writes), nor phases, nor the migration's own resource. Objects travel as
// unstructured content, never as Calico's Go types, so that fields nobody here has heard of survive.
package resources
