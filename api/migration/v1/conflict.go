package v1

import (
	"encoding/json"
	"fmt"
	"strings"
)

// How Message writes a conflict.
const (
	conflictDiffers = " differs between v1 and v3: "
	conflictRemedy  = ": edit or delete one side"
	conflictFields  = "; "
)

// Message describes the conflict in one line, for a condition.
func (c *Conflict) Message() string {
	return c.object() + conflictDiffers + strings.Join(c.Fields, conflictFields) + conflictRemedy
}

// ParseConflict reads a Message. ok is false for any other text. A field whose value holds
// the separator comes back as several.
func ParseConflict(message string) (c Conflict, ok bool) {
	object, fields, differs := strings.Cut(message, conflictDiffers)
	if !differs {
		return Conflict{}, false
	}
	return parseConflict(object, strings.TrimSuffix(fields, conflictRemedy)) // a long message was cut, and lacks the remedy
}

// parseConflict reads an object, as object writes it, and its fields.
func parseConflict(object, fields string) (c Conflict, ok bool) {
	kind, name, ok := strings.Cut(object, " ")
	if !ok {
		return Conflict{}, false
	}
	c.Kind, c.Name = kind, name
	if namespace, inside, namespaced := strings.Cut(name, "/"); namespaced {
		c.Namespace, c.Name = namespace, inside
	}
	if fields != "" {
		c.Fields = strings.Split(fields, conflictFields)
	}
	return c, true
}

// How a line of conflicts is written. A separator inside a value is replaced by what looks like it.
const (
	conflictObject = ": "
	conflictNext   = " | "
	conflictInside = " ¦ "
)

// String lists the conflicts in one line: "KIND NAMESPACE/NAME: FIELD; FIELD | KIND NAME: FIELD".
func (c Conflicts) String() string {
	parts := make([]string, len(c))
	for i := range c {
		text := c[i].object()
		if len(c[i].Fields) > 0 {
			text += conflictObject + strings.Join(c[i].Fields, conflictFields)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), conflictNext, conflictInside)
	}
	return strings.Join(parts, conflictNext)
}

// object is KIND NAMESPACE/NAME, or KIND NAME.
func (c *Conflict) object() string {
	if c.Namespace != "" {
		return c.Kind + " " + c.Namespace + "/" + c.Name
	}
	return c.Kind + " " + c.Name
}

// MarshalJSON writes the line.
func (c Conflicts) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// ToUnstructured is what MarshalJSON writes, without JSON.
func (c Conflicts) ToUnstructured() any { return c.String() }

// UnmarshalJSON reads what MarshalJSON wrote, and the list of objects that earlier versions
// wrote. A field whose value holds the separator of fields comes back as several.
func (c *Conflicts) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]Conflict)(c))
	}
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return fmt.Errorf("read the conflicts: %w", err)
	}
	*c = ParseConflicts(line)
	return nil
}

// ParseConflicts reads a line of conflicts.
func ParseConflicts(line string) Conflicts {
	var all Conflicts
	for part := range strings.SplitSeq(line, conflictNext) {
		object, fields, _ := strings.Cut(part, conflictObject)
		if conflict, ok := parseConflict(object, fields); ok {
			all = append(all, conflict)
		}
	}
	return all
}
