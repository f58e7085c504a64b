package statusview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Role is what a part of a text is, for those who colour it.
type Role int

// The roles.
const (
	Plain Role = iota
	Title
	Good
	Warning
	Bad
	Faint
)

// View says how much of an overview is shown, and how.
type View struct {
	// Tree shows every kind, also those that are done; Wide history and conditions as well.
	Tree, Wide bool
	// Style colours a part; nil leaves it as it is.
	Style func(Role, string) string
}

// Text writes an overview for a terminal.
func (o *Overview) Text(to io.Writer, v View) error {
	_, err := io.WriteString(to, o.String(v))
	return err
}

// String is what Text writes.
func (o *Overview) String(v View) string {
	p := &page{view: v, now: o.Now}
	if o.Name != "" {
		o.head(p)
		o.stale(p)
		o.present(p)
		o.objects(p)
		o.reasons(p)
		o.wide(p)
	}
	o.orphans(p)
	return p.text.String()
}

// page is a text of rows: a word on the left, and lines beside it.
type page struct {
	view View
	now  time.Time
	text strings.Builder
}

func (p *page) style(role Role, text string) string {
	if p.view.Style == nil || role == Plain {
		return text
	}
	return p.view.Style(role, text)
}

// column is where the lines begin.
const column = 12

func (p *page) row(name string, lines ...string) {
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(&p.text, "%s%s\n", p.style(Title, fmt.Sprintf("%-*s", column, name)), line)
	}
}

func (o *Overview) head(p *page) {
	phase := o.Phase
	if phase == "" {
		phase = "not begun"
	}
	title := p.style(Title, o.Kind+" "+qualified(o.Namespace, o.Name)) + ": " + p.style(o.role(), phase)
	if o.EnteredAt != nil {
		title += " for " + p.since(*o.EnteredAt)
	}
	if o.Deadline != nil {
		title += ", deadline " + p.until(*o.Deadline)
	}
	if o.Deleting {
		title += ", being deleted"
	}
	fmt.Fprintln(&p.text, title)
	var parts []string
	for _, ph := range o.Phases {
		parts = append(parts, o.mark(p, ph))
	}
	fmt.Fprintf(&p.text, "\n  %s\n\n", strings.Join(parts, p.style(Faint, " → ")))
}

func qualified(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }

// role colours the present phase.
func (o *Overview) role() Role {
	return map[Outcome]Role{Running: Title, WaitsForPerson: Warning, Succeeded: Good, Failed: Bad}[o.Outcome]
}

// mark shows a phase of the line; the present one in brackets too, for who sees no colour.
func (o *Overview) mark(p *page, ph Phase) string {
	switch {
	case ph.Present:
		sign := map[Outcome]string{Running: "●", WaitsForPerson: "‼", Succeeded: "✓", Failed: "×"}[o.Outcome]
		return p.style(o.role(), sign+" ["+ph.Name+"]")
	case ph.Visited:
		return p.style(Good, "✓ ") + ph.Name
	}
	return p.style(Faint, "○ "+ph.Name)
}

func (o *Overview) stale(p *page) {
	s := o.Stale
	if s == nil {
		return
	}
	lines := []string{p.style(Bad, "‼ This status is stale"+p.from(s.Since)+": ") + s.Why, s.Do}
	if s.Command != "" {
		lines = append(lines, "  "+s.Command)
	}
	p.row("Stale", lines...)
}

func (o *Overview) present(p *page) {
	if o.Note != "" {
		p.row("Note", p.style(Warning, "‼ ")+o.Note)
	}
	if o.InForce != "" {
		p.row("Revision", p.style(Warning, "‼ ")+o.Revision+" drove it last; this output is from "+o.InForce+", the machine file at hand")
	}
	if o.Description != "" {
		p.row("Phase", o.Description)
	}
	if o.Step != nil {
		p.row("Step", o.Step.text(p))
	}
	if o.Message != "" && o.Message != o.Description {
		p.row("Message", o.Message)
	}
	for _, c := range o.Conditions {
		if c.Status == metav1.ConditionTrue && slices.Contains([]string{fsm.ConditionStalled, migrationv1.ConditionFailed}, c.Type) {
			p.row(c.Type, p.style(Bad, c.Message))
		}
	}
}

func (s *Step) text(p *page) string {
	text := s.Name
	if s.Of > 0 {
		text += fmt.Sprintf(" (%d of %d)", s.Number, s.Of)
	}
	switch {
	case s.Does != "":
		text += ": " + s.Does
	case s.Attempts > 0:
		text += "."
	}
	if s.Attempts > 0 {
		failed := fmt.Sprintf(" Failed %d times in a row", s.Attempts)
		if s.NotBefore != nil && s.NotBefore.After(p.now) {
			failed += ", tried again " + p.until(*s.NotBefore)
		}
		text += p.style(Warning, failed+".")
	}
	return text
}

func (o *Overview) objects(p *page) {
	if pr := o.Progress; pr != nil {
		text := fmt.Sprintf("%s %d/%d, %d/%d kinds", bar(pr.Done, pr.Total), pr.Done, pr.Total, pr.KindsDone, pr.Kinds)
		if pr.ObjectsPerSecond > 0 {
			text += fmt.Sprintf(", %.0f/s", pr.ObjectsPerSecond)
		}
		if pr.ExpectedEnd != nil {
			text += ", done " + p.until(*pr.ExpectedEnd)
		}
		p.row("Objects", append([]string{text}, o.kinds(p)...)...)
		if pr.NotCopied != "" {
			p.row("Not copied", pr.NotCopied)
		}
		if pr.OnlyInV3 != "" {
			p.row("Only in v3", p.style(Warning, pr.OnlyInV3))
		}
	}
	if o.CopyAhead != nil {
		p.row("Ahead", o.ahead()...)
	}
	if l := o.Lock; l != nil {
		text := p.style(Warning, fmt.Sprintf("v1 for %s", short(l.Seconds)))
		if l.Mode != "" {
			text += fmt.Sprintf(" (%s)", l.Mode)
		}
		if l.Deadline != nil {
			text += ", rolls back " + p.until(*l.Deadline)
		}
		p.row("Locked", text)
	}
}

// kinds are those that are not done, or all of them.
func (o *Overview) kinds(p *page) []string {
	var lines []string
	for _, k := range o.Progress.PerKind {
		if k.Done == k.Total && k.Conflicts == 0 && !p.view.Tree {
			continue
		}
		line := fmt.Sprintf("  %-32s %s %d/%d", k.Kind, bar(k.Done, k.Total), k.Done, k.Total)
		if k.Conflicts > 0 {
			line += p.style(Warning, fmt.Sprintf(" ‼ %s", Count(k.Conflicts, "conflict")))
		}
		lines = append(lines, line)
	}
	return lines
}

func (o *Overview) ahead() []string {
	a := o.CopyAhead
	text := string(a.State)
	if a.Round > 0 {
		text = fmt.Sprintf("%s; round %d changed %s", a.State, a.Round, Count(a.Changed, "object"))
	}
	if a.ExpectedLockSeconds > 0 {
		text += fmt.Sprintf("; the lock is expected to last %ds", a.ExpectedLockSeconds)
	}
	lines := []string{text}
	if a.Message != "" {
		lines = append(lines, "  "+a.Message)
	}
	return lines
}

func (o *Overview) reasons(p *page) {
	var why []string
	for _, c := range o.WhyNot {
		where := "the exit to " + c.To + " is closed: "
		if c.Step != "" {
			where = "step " + c.Step + " waits: "
		}
		why = append(why, where+c.Guard)
		if c.Value != "" {
			why = append(why, p.style(Faint, "  seen: "+c.Value))
		}
	}
	p.row("Why not", why...)
	p.row("Conflicts", o.conflicts(p)...)
	if len(o.Held) > 0 {
		var names []string
		for _, h := range o.Held {
			names = append(names, h.Effect)
		}
		p.row("Held", strings.Join(names, ", "))
	}
	var values []string
	for _, name := range slices.Sorted(maps.Keys(o.State)) {
		values = append(values, name+": "+string(o.State[name]))
	}
	p.row("State", values...)
	if o.OnDelete != nil {
		p.row("Deletion", o.OnDelete.String())
	}
	var deeds []string
	for _, d := range o.Next {
		deeds = append(deeds, d.Why)
		if d.Command != "" {
			deeds = append(deeds, "  "+p.style(Title, d.Command))
		}
	}
	p.row("Next", deeds...)
}

// orphans are what is left of objects that are gone.
func (o *Overview) orphans(p *page) {
	var lines []string
	for _, left := range o.Orphans {
		lines = append(lines, p.style(Warning, "‼ ")+fmt.Sprintf("%s %s is gone (UID %s); it was in %s", left.Kind, qualified(left.Namespace, left.Object), left.UID, left.Phase))
		for _, h := range slices.Backward(left.Held) {
			lines = append(lines, strings.TrimRight(fmt.Sprintf("  holds %-10s %s", h.Effect, h.Release), " "))
		}
		lines = append(lines, "  "+left.Next, "  "+p.style(Title, left.Command))
	}
	p.row("Orphaned", lines...)
}

// firstConflicts is how many are named here; there is a command for all of them.
const firstConflicts = 3

func (o *Overview) conflicts(p *page) []string {
	var lines []string
	for i, c := range o.Conflicts {
		if i == firstConflicts && !p.view.Tree {
			break
		}
		text := p.style(Warning, "‼ ") + c.Kind + " " + strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
		if len(c.Fields) > 0 {
			text += ": " + v1alpha1.Shorten(c.Fields[0], 100)
		}
		lines = append(lines, text)
	}
	if len(lines) == 0 && o.ConflictCount > 0 { // not every CRD keeps the list
		return []string{p.style(Warning, "‼ ") + Count(o.ConflictCount, "object")}
	}
	if more := int(o.ConflictCount) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

func (o *Overview) wide(p *page) {
	if !p.view.Wide {
		return
	}
	var conditions, history []string
	for _, c := range o.Conditions {
		conditions = append(conditions, strings.TrimSuffix(fmt.Sprintf("%s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message), ": "))
	}
	for _, t := range o.History {
		text := fmt.Sprintf("%s → %s: %s", t.At.Format(time.RFC3339), t.To, t.Reason)
		if t.From != "" {
			text += fmt.Sprintf(", after %s in %s", short(t.Seconds), t.From)
		}
		history = append(history, strings.TrimSuffix(text+": "+t.Message, ": "))
	}
	p.row("Conditions", conditions...)
	p.row("History", history...)
}

// Line is the overview in one line, for who follows it without a terminal.
func (o *Overview) Line() string {
	text := o.Now.Format(time.RFC3339) + " " + o.Phase
	if o.Step != nil {
		text += " " + o.Step.Name
	}
	if o.Lock != nil {
		text += " locked"
	}
	if pr := o.Progress; pr != nil {
		text += fmt.Sprintf(" %d/%d", pr.Done, pr.Total)
	}
	if o.Stale != nil {
		text += " (stale: " + o.Stale.Why + ")"
	}
	if o.Message != "" {
		text += ": " + o.Message
	}
	return text
}
