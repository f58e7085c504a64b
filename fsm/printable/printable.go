// Package printable makes texts that others have written safe to show: names, messages and contents of objects,
// answers of servers, files. Whoever writes such a text could otherwise move the cursor of a terminal, change its
// title, hide a part, or make lines that look like ours.
//
// A character that cannot be seen is shown as JSON escapes it, such as \u001b. So JSON stays the same data.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line is a text for one line: line breaks and tabs are escaped, too.
func Line(text string) string { return escaped(text, "", nil) }

// Text keeps the line breaks and tabs of a text that is meant to have some.
func Text(text string) string { return escaped(text, "\n\t", nil) }

// Block is a text that begins on a line of ours. Its further lines are indented, so that none looks like one of ours.
func Block(text string) string {
	return strings.ReplaceAll(Text(strings.TrimRight(text, "\n")), "\n", "\n  ")
}

// visible tells whether a character can be seen, or is a space. It is false for control characters, marks of
// direction, what has no width, separators of lines, private use, and what is no character.
func visible(r rune) bool { return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) }

// escaped shows what is not visible, except for some characters and some sequences.
func escaped(text, kept string, sequences []string) string {
	clean := func(r rune) bool { return visible(r) && r != utf8.RuneError || strings.ContainsRune(kept, r) }
	if strings.IndexFunc(text, func(r rune) bool { return !clean(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for text != "" {
		if sequence := prefixIn(sequences, text); sequence != "" {
			b.WriteString(sequence)
			text = text[len(sequence):]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == utf8.RuneError || clean(r):
			b.WriteRune(r)
		default:
			b.WriteString(escape(r))
		}
		text = text[size:]
	}
	return b.String()
}

func prefixIn(sequences []string, text string) string {
	for _, sequence := range sequences {
		if strings.HasPrefix(text, sequence) {
			return sequence
		}
	}
	return ""
}

// escape is a character as JSON escapes it.
func escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}
