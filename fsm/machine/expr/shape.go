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
