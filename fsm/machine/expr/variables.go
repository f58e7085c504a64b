package expr

import "github.com/google/cel-go/cel"

// The Kubernetes release whose CEL libraries expressions may use.
const celRelease = "1.36"

// Bounds of one expression; a larger one is refused before it costs anything.
const (
	maxExprSize  = 8 << 10 // characters
	maxExprDepth = 64      // parentheses and the like
	maxExprLoops = 3       // a loop in a loop in a loop
)

// Roots of what an expression can see; the names are the contract with users.
const (
	VarSelf      = "self"
	VarResult    = "result"
	VarSteps     = "steps"
	VarGuards    = "guards"
	VarVariables = "variables"
	VarRequest   = "request"
	VarPhase     = "phase"
	VarHeld      = "held"
	VarChanged   = "generationChanged"
	VarState     = "state"
	VarNow       = "now"
	VarToken     = "token"
	// VarItem is the item of a forEach. It is none of the roots: authors may have the name for variables of their own, as in
	// list.map(item, item.name).
	VarItem = "item"
	// VarError is why a phase is left, where it is left by an error or its timeout. It is no root, either.
	VarError = "error"
)

// rootTypes are the roots that look the same in every machine; `self` is added.
var rootTypes = map[string]*cel.Type{
	VarResult:    objectType(VarResult),
	VarSteps:     objectType(VarSteps),
	VarGuards:    objectType(VarGuards),
	VarVariables: objectType(VarVariables),
	VarRequest:   objectType(VarRequest),
	VarPhase:     objectType(VarPhase),
	VarState:     objectType(VarState),
	VarHeld:      cel.ListType(cel.StringType),
	VarChanged:   cel.BoolType,
	VarNow:       cel.TimestampType,
	VarToken:     cel.StringType,
}

// objectType names the type of a root or of a part of it. With a blank in it, no
// expression can mean the type when it means the value.
func objectType(path string) *cel.Type { return cel.ObjectType("object " + path) }
