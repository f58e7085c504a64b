package diag

import (
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Inside is where the character at an offset of a text stands in the file; the
// beginning of the value where that cannot be told.
func (s *Source) Inside(path, text string, offset int) Pos {
	at, known := s.at[path]
	if !known {
		return s.Pos(path)
	}
	r := &reader{lines: s.lines, pos: at.Pos}
	var written []Pos
	switch {
	case at.style&yamlv3.LiteralStyle != 0:
		written = r.literal(text)
	case at.style&yamlv3.FoldedStyle != 0:
		r.pos = Pos{at.Line + 1, 1}
		indent, _ := r.blank()
		r.pos.Column += indent
		written = r.flow(text, 0)
	case at.style&yamlv3.SingleQuotedStyle != 0:
		r.pos.Column++
		written = r.flow(text, '\'')
	case at.style&yamlv3.DoubleQuotedStyle != 0:
		r.pos.Column++
		written = r.flow(text, '"')
	default:
		written = r.flow(text, 0)
	}
	if offset >= len(written) {
		return at.Pos
	}
	return written[offset]
}

// reader reads a value a second time, for where its characters stand: the parser
// tells only where it begins. It stops where the file says something else than
// the value, so a position is right or not there.
type reader struct {
	lines []string
	pos   Pos
	// line is the one at pos.
	line   []rune
	lineNo int
	// breaks are line breaks of the value that were read in one go.
	breaks int
}

// literal finds the characters of a | block: each line of it is one of the text.
func (r *reader) literal(text string) []Pos {
	var written []Pos
	for i, line := range strings.Split(text, "\n") {
		at := Pos{r.pos.Line + 1 + i, 1} // the first is the header
		long, short := []rune(r.at(at.Line)), []rune(line)
		if !strings.HasSuffix(string(long), line) {
			return append(written, at)
		}
		at.Column += len(long) - len(short)
		for range len(short) + 1 { // and its end
			written = append(written, at)
			at.Column++
		}
	}
	return written
}

// flow finds the characters of a text between quotes, or of one without, in which
// a line break is a blank.
func (r *reader) flow(text string, quote rune) []Pos {
	var written []Pos
	for _, want := range text {
		r.joined(quote)
		at := r.pos
		got, ok := r.lineBreak()
		if !ok {
			got, ok = r.character(quote)
		}
		if !ok || got != want {
			return written
		}
		written = append(written, at)
	}
	return append(written, r.pos)
}

func (r *reader) at(line int) string {
	if line < 1 || line > len(r.lines) {
		return ""
	}
	return strings.TrimSuffix(r.lines[line-1], "\r")
}

func (r *reader) rest() []rune {
	if r.lineNo != r.pos.Line {
		r.line, r.lineNo = []rune(r.at(r.pos.Line)), r.pos.Line
	}
	return r.line[min(r.pos.Column-1, len(r.line)):]
}

// blank counts the blanks that come next, and tells whether nothing else does.
func (r *reader) blank() (n int, all bool) {
	rest := r.rest()
	for n < len(rest) && (rest[n] == ' ' || rest[n] == '\t') {
		n++
	}
	return n, n == len(rest)
}

// lineBreak reads the end of a line, and the empty lines and the indent after it:
// a blank, or as many line breaks as there are empty lines.
func (r *reader) lineBreak() (rune, bool) {
	if r.breaks > 0 {
		r.breaks--
		return '\n', true
	}
	if _, ends := r.blank(); !ends || r.pos.Line >= len(r.lines) {
		return 0, false
	}
	empty := -1
	for ends := true; ends && r.pos.Line < len(r.lines); empty++ {
		r.pos = Pos{r.pos.Line + 1, 1}
		_, ends = r.blank()
	}
	indent, _ := r.blank()
	r.pos.Column += indent
	if empty == 0 {
		return ' ', true
	}
	r.breaks = empty - 1
	return '\n', true
}

// joined skips a line break that a backslash takes away.
func (r *reader) joined(quote rune) {
	for quote == '"' && len(r.rest()) == 1 && r.rest()[0] == '\\' {
		r.pos = Pos{r.pos.Line + 1, 1}
		indent, _ := r.blank()
		r.pos.Column += indent
	}
}

// escapes are what YAML has behind a backslash.
var escapes = map[rune]rune{'0': 0, 'a': '\a', 'b': '\b', 't': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r', 'e': 0x1b,
	' ': ' ', '"': '"', '/': '/', '\\': '\\', 'N': 0x85, '_': 0xa0, 'L': 0x2028, 'P': 0x2029}

var hexDigits = map[rune]int{'x': 2, 'u': 4, 'U': 8}

// character reads one; false at the closing quote, and at the end of the line.
func (r *reader) character(quote rune) (rune, bool) {
	rest := r.rest()
	switch {
	case len(rest) == 0:
		return 0, false
	case quote == '\'' && rest[0] == quote:
		r.pos.Column += 2
		return quote, len(rest) > 1 && rest[1] == quote
	case quote == '"' && rest[0] == quote:
		return 0, false
	case quote != '"' || rest[0] != '\\':
		r.pos.Column++
		return rest[0], true
	case len(rest) == 1:
		return 0, false
	}
	if digits := hexDigits[rest[1]]; digits > 0 && len(rest) >= 2+digits {
		r.pos.Column += 2 + digits
		n, err := strconv.ParseUint(string(rest[2:2+digits]), 16, 32)
		return rune(n), err == nil
	}
	r.pos.Column += 2
	got, known := escapes[rest[1]]
	return got, known
}
