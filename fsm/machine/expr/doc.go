// Package expr compiles the expressions of a machine file, evaluates them, and explains why one is false. It also has
// what is made of them: texts with ${CEL} in them, parameters, and the types of both.
//
// It imports diag and api, and knows no machine: what an expression reads comes from Variables, what it may read is
// what a Scope says at its place in the file. Begin with Scope.Compile, then Expr.Eval and Expr.Why.
package expr
