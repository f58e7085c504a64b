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
			part, whole = part[:room], false
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

// idAtStart finds the id of a message of which only the beginning is there.
func idAtStart(message []byte) (id json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(message))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		if key == "id" {
			return value, true
		}
	}
	return nil, false
}
