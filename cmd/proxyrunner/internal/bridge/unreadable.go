package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// errSeveralLines is what is wrong with an answer that a server has indented, or in which
// an end of line is not escaped.
var errSeveralLines = errors.New("it has several lines, and a message is one line: if it is indented, or a line end in it not escaped, mend that in the server")

// unreadable finds the answers in what a server prints that is no message.
type unreadable struct {
	open *idFinder // of an object that the lines before have begun; nil for none
}

// line takes a line that is no message, and answers which calls it would have answered.
func (u *unreadable) line(line []byte, wrong error) ([]json.RawMessage, error) {
	if text := bytes.TrimSpace(line); bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("[")) {
		f := &idFinder{}
		f.feed(text)
		if len(f.found) > 0 {
			u.open = nil
			return f.found, wrong
		}
		if u.open == nil && text[0] == '{' && f.depth > 0 {
			u.open = f
			return nil, nil
		}
	}
	if u.open == nil {
		return nil, nil
	}
	u.open.step('\n')
	u.open.feed(line)
	if u.open.depth > 0 {
		return nil, nil
	}
	return u.end()
}

// end is for what follows: an object that was begun does not go on.
func (u *unreadable) end() ([]json.RawMessage, error) {
	f := u.open
	u.open = nil
	if f == nil {
		return nil, nil
	}
	if f.depth > 0 && f.answers() && len(f.value) > 0 {
		f.found = append(f.found, slices.Clone(f.id()))
	}
	return f.found, errSeveralLines
}

// unreadableAnswers fails the calls of which the answer cannot be read: nothing else will answer them.
func (l *link) unreadableAnswers(ids []json.RawMessage, wrong error) {
	for _, raw := range ids {
		id, err := readID(raw)
		if err != nil {
			continue
		}
		l.bridge.mu.Lock()
		if c := l.answeredLocked(id); c != nil {
			l.heardLocked()
			l.bridge.o.Log.Warn("the MCP server printed an answer that cannot be read", "error", wrong)
			c.failLocked(wrongAnswer(wrong))
		}
		l.bridge.mu.Unlock()
	}
}
