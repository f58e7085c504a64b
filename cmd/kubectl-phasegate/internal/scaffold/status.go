package scaffold

import (
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// shownField is a field of spec.status in a CRD.
type shownField struct {
	Name, Schema string
	// Title and Column are those of a printer column; there is none without a Column.
	Title, Column string
}

// anything is a schema that takes any value.
const anything = "{x-kubernetes-preserve-unknown-fields: true}"

// columns are the types that a printer column may have, by the kinds of what an expression comes to.
var columns = map[types.Kind]string{
	types.StringKind: "string", types.BytesKind: "string", types.TimestampKind: "date", types.DurationKind: "string",
	types.IntKind: "integer", types.UintKind: "integer", types.DoubleKind: "number", types.BoolKind: "boolean",
}

// statusOf are the fields that the machine shows, with the types of their expressions.
func statusOf(m *fsm.Machine) (all []shownField) {
	for _, f := range m.Program().Status {
		field := shownField{Name: f.Name, Title: strings.ToUpper(f.Name[:1]) + f.Name[1:], Column: columns[expr.TypeOf(f.Expr).Kind()]}
		switch field.Column {
		case "":
			field.Schema = anything
		case "date":
			field.Schema = "{type: string, format: date-time}"
		default:
			field.Schema = "{type: " + field.Column + "}"
		}
		all = append(all, field)
	}
	return all
}
