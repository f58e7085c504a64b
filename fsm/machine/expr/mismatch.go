package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// noOverload is what the type checker says of an operator or a function that cannot be applied.
var noOverload = regexp.MustCompile(`^found no matching overload for '([^']+)' applied to '(?:(.+)\.)?\((.*)\)'`)

// plainly says which side is of which type, and what to do about it, in place of the type checker's words.
func plainly(message string) (plain, fix string) {
	m := noOverload.FindStringSubmatch(message)
	if m == nil {
		return message, fixCEL
	}
	name, on, types := m[1], orNullText(m[2]), splitTypes(orNullText(m[3]))
	operator := strings.TrimPrefix(strings.Trim(name, "_"), "@")
	switch {
	case name == "_?_:_" && len(types) == 3:
		return fmt.Sprintf("?: needs a bool before its ?, and both its values of one type: they are %s, %s and %s", types[0], types[1], types[2]), conversion(types[1:])
	case on != "":
		return fmt.Sprintf("%s(…) of a value of type %s does not take (%s)", name, on, strings.Join(types, ", ")), conversion(append(types, on))
	case len(types) == 2 && name != operator:
		return fmt.Sprintf("%s has a value of type %s on its left and one of type %s on its right", operator, types[0], types[1]), conversion(types)
	case len(types) == 1 && name != operator:
		return fmt.Sprintf("%s cannot be put before a value of type %s", operator, types[0]), conversion(types)
	}
	return fmt.Sprintf("%s does not take (%s)", name, strings.Join(types, ", ")), conversion(types)
}

var wrapped = regexp.MustCompile(`wrapper\((\w+)\)`)

// orNullText is a list of types with the type checker's word for what may be null replaced.
func orNullText(types string) string { return wrapped.ReplaceAllString(types, "$1 or null") }

// splitTypes separates types at the commas that are in no parentheses.
func splitTypes(list string) (types []string) {
	depth, from := 0, 0
	for i, r := range list {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			types, from = append(types, strings.TrimSpace(list[from:i])), i+1
		}
	}
	return append(types, strings.TrimSpace(list[from:]))
}

// conversions say what to do where these types meet; the first that fits counts.
var conversions = []struct {
	types []string
	fix   string
}{
	{[]string{"optional_type"}, "say what it is when it is not there: .orValue(…)"},
	{[]string{"duration", "string"}, `convert a text with duration(…); write one as duration("10s")`},
	{[]string{"duration"}, `write a duration as duration("10s")`},
	{[]string{"timestamp", "string"}, `convert a text with timestamp(…); write a time as timestamp("2026-01-31T12:00:00Z")`},
	{[]string{"timestamp"}, `write a time as timestamp("2026-01-31T12:00:00Z"), a difference as duration("10s")`},
	{[]string{"number"}, "convert it with double(…): a whole number is stored as an int"},
	{[]string{"list(number)"}, "convert it with double(…): a whole number is stored as an int"},
	{[]string{"int", "double"}, "write 1.0 instead of 1, or convert with double(…) or int(…)"},
	{[]string{"int", "string"}, "write a number without quotes, or convert with int(…) or string(…)"},
	{[]string{"string"}, "convert with string(…)"},
}

func conversion(types []string) string {
	for _, c := range conversions {
		missing := slices.ContainsFunc(c.types, func(name string) bool {
			return !slices.ContainsFunc(types, func(t string) bool { return t == name || t == name+" or null" || strings.HasPrefix(t, name+"(") })
		})
		if !missing {
			return c.fix
		}
	}
	return "compare or convert it: each side must be of the same type"
}

const fixCEL = "correct the CEL expression"
