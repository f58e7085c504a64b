package tools

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress reads what `go build -v` prints, which is the name of each package that is compiled, and says now and
// then how far it has come; what is over in moments is not worth a line.
type progress struct {
	to   io.Writer
	what string
	// total is how many packages are to be compiled; 0 if that is not known.
	total int

	mu    sync.Mutex
	begun time.Time
	line  []byte
	done  int
	// rest is all else, errors say.
	rest bytes.Buffer
}

// Write takes what go prints, of which lines may come in parts.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, data...)
	for {
		line, left, whole := bytes.Cut(p.line, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		if bytes.ContainsAny(line, " :#") {
			p.rest.Write(append(line, '\n'))
		} else {
			p.done++
		}
		p.line = append([]byte(nil), left...)
	}
}

// begin says how far it is after two seconds, and each 15 seconds from then on, until stop is called.
func (p *progress) begin() (stop func()) {
	p.begun = time.Now()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for wait := 2 * time.Second; ; wait = 15 * time.Second {
			select {
			case <-done:
				return
			case <-time.After(wait):
				fmt.Fprintln(p.to, p.String())
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		p.mu.Lock()
		p.rest.Write(p.line)
		p.mu.Unlock()
		if took := time.Since(p.begun); took >= 2*time.Second {
			fmt.Fprintf(p.to, "%s: %s\n", p.what, took.Round(time.Second))
		}
	}
}

// String is one line: what is built, how much of it, and how much longer that takes at the pace so far.
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(p.begun)
	parts := []string{fmt.Sprintf("building %s for %s", p.what, took.Round(time.Second))}
	switch {
	case p.total == 0:
	case p.done >= p.total:
		parts = append(parts, "linking")
	default:
		parts = append(parts, fmt.Sprintf("%d of %d packages compiled", p.done, p.total))
		if p.done >= p.total/20 { // before, it would be a guess
			left := time.Duration(float64(took) / float64(p.done) * float64(p.total-p.done))
			parts = append(parts, fmt.Sprintf("about %s left", left.Round(10*time.Second)))
		}
	}
	return strings.Join(parts, ", ")
}
