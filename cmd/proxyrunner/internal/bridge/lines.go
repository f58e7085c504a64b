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
	if l.find.request {
		return nil
	}
	return l.find.id()
}
