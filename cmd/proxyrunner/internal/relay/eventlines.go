package relay

import (
	"bytes"
	"strings"
)

// eventLines finds the lines of an event stream that passes piece by piece: they end with a line feed, a carriage return, or both.
type eventLines struct {
	bare bool // the last byte was a carriage return: a line feed belongs to it
}

// cut finds the line at the beginning of p, and how many bytes of p it takes with its end. Where p has no end of a line, ended is
// false, line is the beginning of one, and used what comes before it.
func (l *eventLines) cut(p []byte) (line []byte, used int, ended bool) {
	skip := 0
	if l.bare && len(p) > 0 {
		l.bare = false
		if p[0] == '\n' {
			skip = 1
		}
	}
	end := bytes.IndexAny(p[skip:], "\r\n")
	if end < 0 {
		return p[skip:], skip, false
	}
	end += skip
	l.bare = p[end] == '\r'
	return p[skip:end], end + 1, true
}

// split is a bufio.SplitFunc. A last line without an end is none.
func (l *eventLines) split(data []byte, _ bool) (advance int, token []byte, err error) {
	line, used, ended := l.cut(data)
	if !ended {
		line = nil
	}
	return used, line, nil
}

// byteOrderMark may be at the beginning of a stream, and is nowhere part of a name.
var byteOrderMark = []byte("\ufeff")

// field is the name and the value of a line; an empty line has no name, a comment the name ":".
func field(line []byte) (name, value string) {
	text := string(bytes.TrimPrefix(line, byteOrderMark))
	if strings.HasPrefix(text, ":") {
		return ":", ""
	}
	name, value, _ = strings.Cut(text, ":")
	return name, strings.TrimPrefix(value, " ")
}
