package describe

import (
	"fmt"
	"strings"
)

// Text is the story for a terminal.
func (s *Phase) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, a phase of machine %s (%s)\n", s.title(), s.Machine, s.Revision)
	writeLine(&b, 0, s.Description)
	for _, part := range []section{s.now(), s.happens(), s.leaves(), s.deletes(), s.holds(), s.lasts(), s.out()} {
		part.write(&b, 0)
	}
	return b.String()
}

func (s *Phase) title() string {
	if len(s.Traits) == 0 {
		return s.Phase
	}
	return s.Phase + " [" + strings.Join(s.Traits, ", ") + "]"
}

// section is a part of the story; both the text and the page are made of them.
type section struct {
	title string
	lines []line
}

type line struct {
	depth int
	text  string
}

func (c *section) add(depth int, format string, args ...any) {
	c.lines = append(c.lines, line{depth, fmt.Sprintf(format, args...)})
}

func (s *Phase) now() section {
	c := section{title: "Now"}
	if s.Live == nil {
		return c
	}
	st := s.Live.Status
	since := ""
	if st.EnteredAt != nil {
		since = " since " + st.EnteredAt.UTC().Format("2006-01-02 15:04:05Z")
	}
	c.add(0, "%s is in %s%s", s.Live.Object, st.Phase, since)
	if st.Revision != "" && st.Revision != s.Revision {
		c.add(0, "revision %s drove it last, which is not the one shown here", st.Revision)
	}
	if st.Deadline != nil {
		c.add(0, "its deadline is %s", st.Deadline.UTC().Format("2006-01-02 15:04:05Z"))
	}
	if len(st.Held) > 0 {
		c.add(0, "it holds %s", strings.Join(st.HeldNames(), ", "))
	}
	for _, b := range st.Blocked {
		where := "the exit to " + b.To + " is closed"
		if b.Step != "" {
			where = "step " + b.Step + " waits"
		}
		c.add(0, "%s: %s", where, b.Guard)
		if b.Value != "" {
			c.add(1, "seen: %s", b.Value)
		}
	}
	if st.OnDelete != nil {
		c.add(0, "a deletion now: %s", st.OnDelete)
	}
	return c
}

func (s *Phase) happens() section {
	c := section{title: "What happens here"}
	for i, step := range s.Steps {
		c.add(0, "%d. %s", i+1, strings.TrimSuffix(step.Name+": "+step.Does, ": "))
		for _, note := range step.Notes {
			c.add(2, "%s", note)
		}
	}
	if s.AfterError != "" {
		c.add(0, "%s", s.AfterError)
	}
	return c
}

func (s *Phase) leaves() section {
	c := section{title: "What leaves it (the first that is open)"}
	for _, x := range s.Exits {
		c.add(0, "→ %s: %s", x.To, x.Words)
	}
	if len(s.Waiting) > 0 {
		c.add(0, "Until then:")
	}
	for _, w := range s.Waiting {
		c.add(1, "%s", w)
	}
	return c
}

func (s *Phase) deletes() section {
	c := section{title: "What a deletion does"}
	if s.Deletion.Words == "" {
		return c
	}
	c.add(0, "%s", s.Deletion.Words)
	for _, hop := range s.Deletion.Path {
		c.add(0, "→ %s", hop.Phase)
		for _, does := range hop.Does {
			c.add(2, "%s", does)
		}
	}
	return c
}

func (s *Phase) holds() section {
	c := section{title: "What is held"}
	h := s.Held
	if len(h.Entry) > 0 {
		c.add(0, "on entry, at most: %s", strings.Join(h.Entry, ", "))
	}
	if len(h.Here) > len(h.Entry) {
		c.add(0, "here, at most: %s", strings.Join(h.Here, ", "))
	}
	if len(h.Keeps) > 0 {
		c.add(0, "stays in place for good from here on: %s", strings.Join(h.Keeps, ", "))
	}
	if len(c.lines) == 0 {
		c.add(0, "nothing")
	}
	return c
}

func (s *Phase) lasts() section {
	c := section{title: "Worst time until the object rests"}
	w := s.Worst
	switch {
	case len(w.Path) == 1:
		c.add(0, "none: it rests here")
	case len(w.Unbounded) == 0:
		c.add(0, "%s: %s", w.Bound, strings.Join(w.Path, " → "))
	default:
		c.add(0, "no bound, because")
	}
	for _, why := range w.Unbounded {
		c.add(1, "%s", why)
	}
	if len(w.Timeouts) > 0 {
		c.add(0, "timeouts on the way: %s", strings.Join(w.Timeouts, ", "))
	}
	return c
}

const byHand = "its token does not come from an annotation: set what it reads by hand"

func (c *section) commands(all []string) {
	if len(all) == 0 {
		all = []string{byHand}
	}
	for _, command := range all {
		c.add(1, "%s", command)
	}
}

func (s *Phase) out() section {
	c := section{title: "How a person gets it out"}
	for _, q := range s.Requests {
		c.add(0, "request %s, %s:", q.Name, strings.Join(q.Leads, " and "))
		c.commands(q.Commands)
	}
	return c
}
