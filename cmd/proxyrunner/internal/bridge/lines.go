package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// lines reads what a server prints, line by line, and never holds more than a
// line of at most limit bytes.
type lines struct {
	r     *bufio.Reader
	limit int
	buf   []byte
	find  *idFinder // of the last line, if it was too long
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next line without its end. It is valid until the next call. Of
// a line that is too long it is the beginning, and whole is false.
func (l *lines) next() (line []byte, whole bool, err error) {
	if cap(l.buf) > 1<<20 { // one long line is no reason to keep so much
		l.buf = nil
	}
	l.buf, whole = l.buf[:0], true
	for {
		part, err := l.r.ReadSlice('\n')
		part = bytes.TrimSuffix(part, []byte("\n"))
		if room := l.limit - len(l.buf); len(part) > room {
			if whole {
				whole, l.find = false, &idFinder{}
				l.find.feed(l.buf)
			}
			l.find.feed(part)
			part = part[:room]
		} else if !whole {
			l.find.feed(part)
		}
		l.buf = append(l.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(l.buf) == 0:
			return nil, false, err
		default:
			// The end of the stream ends a line as well; it is met again next time.
			return bytes.TrimSuffix(l.buf, []byte("\r")), whole, nil
		}
	}
}

// id is that of the last line, which was too long, if it is an answer; nil if it is
// none or has no id.
func (l *lines) id() json.RawMessage {
	if l.find.request || len(l.find.value) == 0 {
		return nil
	}
	return bytes.TrimSpace(l.find.value)
}

// idFinder finds the id of a message that passes piece by piece, wherever it is, and
// holds no more than that.
type idFinder struct {
	depth             int
	quoted, escaped   bool
	isKey, collecting bool
	key, value        []byte
	request           bool // it has a method
}

// longestID bounds what is kept of names and of the id.
const longestID = 64

func (f *idFinder) feed(part []byte) {
	for _, c := range part {
		f.step(c)
	}
}

func (f *idFinder) step(c byte) {
	switch {
	case f.quoted:
		f.keep(c)
		f.quoted, f.escaped = f.escaped || c != '"', !f.escaped && c == '\\'
	case c == '"':
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
		f.depth++
		f.isKey = f.depth == 1
	case '}', ']':
		f.depth--
		f.collecting = false
	case ',':
		if f.depth == 1 {
			f.isKey, f.collecting, f.key = true, false, f.key[:0]
		}
	case ':':
		if f.depth == 1 {
			f.isKey, f.collecting = false, string(f.key) == `"id"`
			f.request = f.request || string(f.key) == `"method"`
		}
	default:
		f.keep(c)
	}
}

// keep collects the name of a member, or the id.
func (f *idFinder) keep(c byte) {
	switch {
	case f.depth != 1:
	case f.isKey && f.quoted && len(f.key) < longestID:
		f.key = append(f.key, c)
	case f.collecting && len(f.value) < longestID:
		f.value = append(f.value, c)
	}
}
