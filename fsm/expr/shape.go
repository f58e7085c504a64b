package expr

// Shape is what is known of the content of an object that no type describes. It answers nil for a path that may lead to
// something.
type Shape func(path []string) *Misshape

// Misshape is why a path leads to nothing.
type Misshape struct {
	// At is the first name of the path that is wrong.
	At           int
	Message, Fix string
}

// setShape notes what is known of an output. What was known before counts as well where the step may be left out.
func (s *Scope) setShape(output string, shape Shape, certain bool) {
	if certain {
		s.shapes[output] = nil
	}
	s.shapes[output] = append(s.shapes[output], shape)
}

// misshapen refuses a path into an output that leads to nothing, whichever step it is of.
func (s *Scope) misshapen(r exprRef) *Problem {
	if r.root != VarResult || len(r.names) < 3 {
		return nil
	}
	var first *Misshape
	for _, shape := range s.shapes[r.field] {
		if shape == nil {
			return nil
		}
		m := shape(r.names[2:])
		if m == nil {
			return nil
		}
		if first == nil {
			first = m
		}
	}
	if first == nil {
		return nil
	}
	return &Problem{Code: "PG006", Message: first.Message, Fix: first.Fix, Offset: r.offsets[2+first.At]}
}
