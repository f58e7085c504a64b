package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// lineWidth fits the narrowest usual terminal: a line that wraps cannot be
	// rewritten.
	lineWidth = 79
	barWidth  = 24
	// plainEvery bounds how often a log is told about progress.
	plainEvery = time.Second
)

// terminal prints the story. Finished lines stay; the status line is rewritten
// in place where that is possible, and is a line now and then where it is not.
type terminal struct {
	out   *os.File
	live  bool
	began time.Time

	status string    // what the status line says
	told   time.Time // when it was last printed as a plain line
}

func newTerminal(out *os.File) *terminal {
	return &terminal{out: out, live: isLive(out), began: time.Now()}
}

// isLive tells whether lines may be rewritten.
func isLive(out *os.File) bool {
	info, err := out.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	_, noColor := os.LookupEnv("NO_COLOR")
	return !noColor && os.Getenv("TERM") != "dumb"
}

// heading begins a step.
func (t *terminal) heading(n, of int, title string) {
	t.line("")
	text := fmt.Sprintf("[%d/%d] %s", n, of, title)
	at := fmt.Sprintf("%.1f s", time.Since(t.began).Seconds())
	t.print(fmt.Sprintf("%-*s %s", lineWidth-10, text, at))
}

// line prints a line that stays, indented under its heading.
func (t *terminal) line(format string, args ...any) {
	t.print(strings.TrimRight("  "+fmt.Sprintf(format, args...), " "))
}

// block prints the output of a program, indented.
func (t *terminal) block(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		t.print("    " + strings.TrimRight(line, "\n"))
	}
}

func (t *terminal) print(line string) {
	if t.live && t.status != "" {
		fmt.Fprint(t.out, "\r\x1b[K")
	}
	t.status = ""
	fmt.Fprintln(t.out, line)
}

// progress shows how far something is. Saying the same again, or nothing, prints
// nothing.
func (t *terminal) progress(text string) {
	text = cut("  "+text, lineWidth)
	if text == t.status || strings.TrimSpace(text) == "" {
		return
	}
	if t.live {
		fmt.Fprint(t.out, "\r\x1b[K"+text)
		t.status = text
		return
	}
	if now := time.Now(); now.Sub(t.told) >= plainEvery {
		t.told = now
		t.status = text
		fmt.Fprintln(t.out, text)
	}
}

// bar draws done of total.
func bar(done, total int) string {
	if total <= 0 {
		return strings.Repeat("·", barWidth)
	}
	filled := min(max(done, 0), total) * barWidth / total
	return strings.Repeat("█", filled) + strings.Repeat("·", barWidth-filled)
}

func cut(text string, width int) string {
	runes := []rune(strings.ReplaceAll(text, "\n", " "))
	if len(runes) <= width {
		return string(runes)
	}
	return string(runes[:width-1]) + "…"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
