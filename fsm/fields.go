package fsm

import "github.com/phasegate/phasegate/fsm/expr"

// Fields lists what the expressions of the file read of the object, each field once.
func (m *Machine) Fields() []expr.Field {
	return expr.Fields(m.prog.Texts, m.prog.InText)
}
