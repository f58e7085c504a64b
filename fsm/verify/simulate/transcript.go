package simulate

import (
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Transcript is what happened, as blocks. Looks that are the same as the one
// before are counted, not repeated.
type Transcript []Block

// Block is a step of the script, or a look of the machine at its object.
type Block struct {
	// Step of the script; empty for a look.
	Step string `json:"step,omitempty"`
	// Lines are what the machine did in a look.
	Lines []Line `json:"lines,omitempty"`
	// Again counts looks that went the same way; the last was at Until.
	Again int             `json:"again,omitempty"`
	Until metav1.Duration `json:"until,omitzero"`

	look int
}

// Line is one thing that happened.
type Line struct {
	At   metav1.Duration `json:"at"`
	Text string          `json:"text"`
}

// maxLines bounds a transcript; what happens later is not told.
const maxLines = 20_000

// recorder makes a transcript of events.
type recorder struct {
	blocks Transcript
	lines  int
}

func (r *recorder) step(text string) {
	r.blocks = append(r.merged(), Block{Step: text})
}

func (r *recorder) tell(e Event) {
	text := e.Text
	if e.Kind == EventNote {
		text = "note: " + text
	}
	r.lines++
	switch {
	case r.lines == maxLines:
		text = "… (the transcript is too long to go on)"
	case r.lines > maxLines:
		return
	}
	line := Line{At: metav1.Duration{Duration: e.At}, Text: text}
	if n := len(r.blocks); n > 0 && r.blocks[n-1].Step == "" && r.blocks[n-1].look == e.Look {
		r.blocks[n-1].Lines = append(r.blocks[n-1].Lines, line)
		return
	}
	r.blocks = append(r.merged(), Block{Lines: []Line{line}, look: e.Look})
}

// merged are the blocks, with the last one counted into the one before if it
// tells the same.
func (r *recorder) merged() Transcript {
	n := len(r.blocks)
	if n < 2 {
		return r.blocks
	}
	before, last := &r.blocks[n-2], r.blocks[n-1]
	same := before.Step == "" && last.Step == "" &&
		slices.EqualFunc(before.Lines, last.Lines, func(a, b Line) bool { return a.Text == b.Text })
	if !same {
		return r.blocks
	}
	before.Again++
	before.Until = last.Lines[0].At
	r.lines -= len(last.Lines)
	return r.blocks[:n-1]
}

// Write prints a transcript for people.
func (t Transcript) Write(out io.Writer) {
	for _, b := range t {
		if b.Step != "" {
			fmt.Fprintf(out, "%s\n", b.Step)
		}
		last := ""
		for _, l := range b.Lines {
			at := l.At.Duration.String()
			if at == last {
				at = ""
			} else {
				last = at
			}
			fmt.Fprintf(out, "%12s  %s\n", at, l.Text)
		}
		switch b.Again {
		case 0:
		case 1:
			fmt.Fprintf(out, "%12s  (the same once more, at %s)\n", "", b.Until.Duration)
		default:
			fmt.Fprintf(out, "%12s  (the same %d more times, the last at %s)\n", "", b.Again, b.Until.Duration)
		}
	}
}
