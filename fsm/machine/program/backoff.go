package program

import (
	"fmt"
	"slices"
	"strings"
)

// Ends tells whether an error of a class is the last one; attempts are those in a row, with this one.
func (b Backoff) Ends(class Class, attempts int32) bool {
	return b.Attempts > 0 && attempts >= b.Attempts || slices.Contains(b.NonRetryable, class)
}

// EndsBy says for people what ends it: 5 attempts, or an error of Forbidden.
func (b Backoff) EndsBy() string {
	var all []string
	if b.Attempts > 0 || len(b.NonRetryable) == 0 {
		all = append(all, fmt.Sprintf("%d attempts", b.Attempts))
	}
	if len(b.NonRetryable) > 0 {
		all = append(all, "an error of "+b.Classes())
	}
	return strings.Join(all, ", or ")
}

// Classes are NonRetryable for people.
func (b Backoff) Classes() string {
	names := make([]string, len(b.NonRetryable))
	for i, class := range b.NonRetryable {
		names[i] = string(class)
	}
	return strings.Join(names, " or ")
}

// nonRetryable are the classes that a file names, else those of what it falls back on.
func (f *findings) nonRetryable(path string, src []string, base []Class) []Class {
	if src == nil {
		return base
	}
	retried := slices.DeleteFunc(slices.Clone(classes), func(c Class) bool { return c == ClassTerminal || c == ClassAny })
	var all []Class
	for i, name := range src {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch class := Class(name); {
		case class == ClassTerminal:
			f.find(at, "PG000", "a Terminal error is never retried", "remove it")
		case class == ClassAny:
			f.find(at, "PG000", "* would be all classes", "write attempts: 1")
		case !slices.Contains(retried, class):
			f.find(at, "PG000", fmt.Sprintf("unknown error class %q", name), fmt.Sprintf("write one of %v", retried))
		case slices.Contains(all, class):
			f.find(at, "PG000", name+" is there twice", "remove one")
		default:
			all = append(all, class)
		}
	}
	return all
}
