package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm/printable"
)

// terminalOf is the terminal behind a writer, where colour and animation belong: nil with
// NO_COLOR, and where a terminal can only print.
func terminalOf(to io.Writer) *os.File {
	f, ok := behind(to).(*os.File)
	if !ok || !isTerminal(f) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

func isTerminal(to io.Writer) bool {
	f, ok := to.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printable are streams that pass on nothing but what can be seen, and our styles where there is colour.
func (s streams) printable() streams {
	s.out, s.err = seen(s.out), seen(s.err)
	return s
}

func seen(to io.Writer) io.Writer {
	switch {
	case to == nil:
		return nil
	case terminalOf(to) == nil:
		return printable.NewWriter(to)
	}
	return printable.NewWriter(to, ourSequences()...)
}

// behind is the writer that a printable one writes to.
func behind(to io.Writer) io.Writer {
	if w, ok := to.(*printable.Writer); ok {
		return w.Exact()
	}
	return to
}

// exact is where data for programs goes as it is: never to a terminal.
func exact(to io.Writer) io.Writer {
	if raw := behind(to); !isTerminal(raw) {
		return raw
	}
	return to
}

// confirm asks a person. Where there is none, --yes must have said it.
func confirm(s streams, yes bool, deed string) error {
	if yes {
		return nil
	}
	in, ok := s.in.(*os.File)
	if !ok || !isTerminal(in) {
		return errors.New(deed + ": there is no terminal to ask on: give --yes")
	}
	fmt.Fprintf(s.err, "%s? [y/N] ", printable.Line(deed))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w: give --yes", err)
	}
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		return nil
	}
	fmt.Fprintln(s.err, "nothing was done")
	return errFindings
}

// styles use the colours that every terminal has in its own palette, so that they can be
// read on light and on dark.
var styles = map[statusview.Role]lipgloss.Style{
	statusview.Title:   lipgloss.NewStyle().Bold(true),
	statusview.Good:    lipgloss.NewStyle().Foreground(lipgloss.Green),
	statusview.Warning: lipgloss.NewStyle().Foreground(lipgloss.Yellow).Bold(true),
	statusview.Bad:     lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
	statusview.Faint:   lipgloss.NewStyle().Faint(true),
}

var sequence = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// ourSequences are those of the styles: others may hide what is printed.
func ourSequences() (all []string) {
	for _, style := range styles {
		all = append(all, sequence.FindAllString(style.Render("text"), -1)...)
	}
	return all
}

// styleFor is nil where there is no colour.
func styleFor(to io.Writer) func(statusview.Role, string) string {
	if terminalOf(to) == nil {
		return nil
	}
	return func(role statusview.Role, text string) string { return styles[role].Render(text) }
}

// What a terminal is told, besides colours.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

type screen struct{ to *os.File }

// openScreen takes the terminal; close restores it.
func openScreen(to *os.File) screen {
	fmt.Fprint(to, enterScreen)
	return screen{to}
}

func (s screen) close() { fmt.Fprint(s.to, leaveScreen) }

// draw shows as much of a text as there is room for, in one write, so that nothing flickers.
func (s screen) draw(text string) {
	if width, height, err := term.GetSize(int(s.to.Fd())); err == nil {
		text = fit(text, width, height)
	}
	fmt.Fprint(s.to, goHome, strings.ReplaceAll(text, "\n", clearLine+"\r\n"), clearRest)
}

// fit breaks lines that are too long. Of a text that is too high the middle is left out: it
// begins with where the migration stands, and ends with what to do next.
func fit(text string, width, height int) string {
	lines := strings.Split(lipgloss.NewStyle().Width(width).Render(text), "\n")
	if len(lines) > height && height > 2 {
		top := height / 2
		lines = slices.Concat(lines[:top], []string{"…"}, lines[len(lines)-(height-top-1):])
	}
	return strings.Join(lines, "\n")
}
