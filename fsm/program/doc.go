// Package program compiles a machine file: every expression compiled, every duration parsed, every name found. The
// Program that comes of it is data that nobody changes. It also has what a file may name: Bindings.
//
// It imports expr, diag and api, and runs nothing. Begin with Load, which makes a Definition, and with Compile, which
// answers a Program and what is wrong in the file itself. What a run could come to is found by lint.
package program
