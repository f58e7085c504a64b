package printable

import (
	"io"
	"unicode/utf8"
)

// Writer passes on what is written as Text shows it. What is put into one line goes through Line or Value before.
type Writer struct {
	to        io.Writer
	sequences []string
	// begun is a character of which a write had the beginning only.
	begun []byte
}

// NewWriter answers a writer that passes some sequences on as they are: those of our own styles, for a terminal.
func NewWriter(to io.Writer, sequences ...string) *Writer {
	return &Writer{to: to, sequences: sequences}
}

// Exact is where it writes to: for data that has to stay as it is.
func (w *Writer) Exact() io.Writer { return w.to }

// Write tells how much of p was taken. An error of the writer behind it is for all of p.
func (w *Writer) Write(p []byte) (int, error) {
	all := append(w.begun, p...)
	end := len(all) - incomplete(all)
	w.begun = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.to, escaped(string(all[:end]), "\n\t", w.sequences)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// incomplete is how many bytes at the end begin a character that is longer.
func incomplete(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
