package v1

import "strings"

// How Message writes a conflict.
const (
	conflictDiffers = " differs between v1 and v3: "
	conflictRemedy  = ": edit or delete one side"
	conflictFields  = "; "
)

// Message describes the conflict in one line, for a condition.
func (c *Conflict) Message() string {
	object := c.Name
	if c.Namespace != "" {
		object = c.Namespace + "/" + c.Name
	}
	return c.Kind + " " + object + conflictDiffers + strings.Join(c.Fields, conflictFields) + conflictRemedy
}

// ParseConflict reads a Message. ok is false for any other text. A field whose value holds
// the separator comes back as several.
func ParseConflict(message string) (c Conflict, ok bool) {
	object, fields, differs := strings.Cut(message, conflictDiffers)
	kind, name, named := strings.Cut(object, " ")
	if !differs || !named {
		return Conflict{}, false
	}
	c.Kind, c.Name = kind, name
	if namespace, inside, namespaced := strings.Cut(name, "/"); namespaced {
		c.Namespace, c.Name = namespace, inside
	}
	// A long message was cut, and lacks the remedy.
	if fields = strings.TrimSuffix(fields, conflictRemedy); fields != "" {
		c.Fields = strings.Split(fields, conflictFields)
	}
	return c, true
}
