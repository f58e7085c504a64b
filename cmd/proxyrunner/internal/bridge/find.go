package bridge

import (
	"bytes"
	"encoding/json"
	"slices"
)

// idFinder finds the ids of messages that pass piece by piece, wherever they are, and
// holds no more than that. What passes need not be JSON.
type idFinder struct {
	depth           int
	level           int // the depth of the members of a message: 2 in a list
	quoted, escaped bool
	over            bool // what comes is behind the messages
	found           []json.RawMessage

	isKey, collecting bool
	key               []byte
	member
}

// member is what is known of one message.
type member struct {
	value   []byte // of its id
	request bool   // it has a method
	answer  bool   // it has a result or an error
	version bool   // it says that it is JSON-RPC
	others  bool   // it has members that JSON-RPC does not have
}

// longestID bounds what is kept of names and of the id, and mostFound how many ids are.
const longestID, mostFound = 64, 1024

func (m *member) id() json.RawMessage {
	if len(m.value) == 0 {
		return nil
	}
	return bytes.TrimSpace(m.value)
}

// answers tells whether it answers a call. What does not say that it is JSON-RPC may be a
// line of a structured log.
func (m *member) answers() bool { return m.answer && !m.request && (m.version || !m.others) }

func (f *idFinder) feed(part []byte) {
	for _, c := range part {
		f.step(c)
	}
}

func (f *idFinder) step(c byte) {
	switch {
	case f.over:
	case f.quoted:
		f.keep(c)
		f.quoted, f.escaped = f.escaped || c != '"', !f.escaped && c == '\\'
	case c == '"' && f.depth > 0:
		f.quoted = true
		f.keep(c)
	default:
		f.structure(c)
	}
}

// structure takes what is not in quotes.
func (f *idFinder) structure(c byte) {
	switch c {
	case '{', '[':
		f.opens(c)
	case '}', ']':
		f.closes()
	case ',':
		if f.depth == f.level {
			f.isKey, f.collecting, f.key = true, false, f.key[:0]
		}
	case ':':
		if f.depth == f.level {
			f.isKey = false
			f.named()
		}
	default:
		f.over = f.over || f.depth == 0 && c != ' ' && c != '\t' && c != '\r' && c != '\n'
		f.keep(c)
	}
}

func (f *idFinder) opens(c byte) {
	if f.depth == 0 {
		f.level = 1
		if c == '[' {
			f.level = 2
		}
	}
	f.depth++
	f.isKey = f.depth == f.level
	if f.isKey {
		f.key, f.member = f.key[:0], member{}
	}
}

func (f *idFinder) closes() {
	if f.depth == f.level && f.answers() && len(f.value) > 0 && len(f.found) < mostFound {
		f.found = append(f.found, slices.Clone(f.id()))
	}
	f.depth--
	f.collecting = false
	f.over = f.depth < 0 || f.depth == 0 && f.level == 2 // a log may have brackets in front
}

func (f *idFinder) named() {
	key := string(f.key)
	f.collecting = key == `"id"`
	switch key {
	case `"method"`:
		f.request = true
	case `"result"`, `"error"`:
		f.answer = true
	case `"jsonrpc"`:
		f.version = true
	case `"id"`:
	default:
		f.others = true
	}
}

// keep collects the name of a member, or the id.
func (f *idFinder) keep(c byte) {
	switch {
	case f.depth != f.level || f.depth == 0:
	case f.isKey && f.quoted && len(f.key) < longestID:
		f.key = append(f.key, c)
	case f.collecting && len(f.value) < longestID:
		f.value = append(f.value, c)
	}
}
