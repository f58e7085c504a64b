package program

// Class is the kind of an error, as `onError[].is` names it.
type Class string

// The classes of errors. The driver classifies; the engine only compares.
const (
	ClassTerminal    Class = "Terminal"
	ClassConflict    Class = "Conflict"
	ClassForbidden   Class = "Forbidden"
	ClassNotFound    Class = "NotFound"
	ClassInvalid     Class = "Invalid"
	ClassTimeout     Class = "Timeout"
	ClassThrottled   Class = "Throttled"
	ClassUnavailable Class = "Unavailable"
	ClassAny         Class = "*"
)

var classes = []Class{ClassTerminal, ClassConflict, ClassForbidden, ClassNotFound, ClassInvalid,
	ClassTimeout, ClassThrottled, ClassUnavailable, ClassAny}
