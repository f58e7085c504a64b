// Package program compiles a machine file to a Program, which is immutable data: every expression compiled, every
// duration parsed, every name found. Bindings are what a file may name.
//
// It imports expr, diag and api, and runs nothing. Begin with Load, which makes a Definition, and Compile, which
// returns a Program and the errors of the file itself. Package lint finds what a run could come to.
package program
