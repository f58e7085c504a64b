package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm/printable"
	"github.com/phasegate/phasegate/fsm/show/graph"
)

// stale is how old the last answer of the API server may be. It is asked more often.
const stale = 3 * ask

// content is what changes on the page.
type content struct {
	Title string `json:"title"`
	// Say is read out when it changes, so it is about phases and not about seconds.
	Say string `json:"say"`
	// HTML is what is in <main>.
	HTML string `json:"html"`
}

// view is what the templates show.
type view struct {
	Cluster string
	Kind    string
	Trouble string
	Objects []object
	// More is how many there are besides.
	More int
}

// object is one of them, with a number for the ids of its parts.
type object struct {
	statusview.Overview
	ID      int
	Diagram template.HTML
}

var templates = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"span":  span,
	"clock": clock,
	"until": func(o statusview.Overview, t *time.Time) string { return span(t.Sub(o.Now).Seconds()) },
	"at":    func(t time.Time) string { return clock(&t) },
	"since": func(o statusview.Overview, t *time.Time) string { return span(o.Now.Sub(*t).Seconds()) },
	"share": share,
}).ParseFS(files, "static/*.html"))

// page answers the whole page with the present content in it, so that it tells
// something to a browser without scripts, too.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	c, err := s.content()
	var out bytes.Buffer
	if err == nil {
		err = templates.ExecuteTemplate(&out, "page.html", struct {
			content
			Main template.HTML
		}{c, template.HTML(c.HTML)}) //nolint:gosec // it comes from the templates, which escape
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = out.WriteTo(w) // nobody reads any more
}

func (s *Server) content() (content, error) {
	v := s.view()
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, "main.html", v); err != nil {
		return content{}, fmt.Errorf("make the page: %w", err)
	}
	c := content{Title: "No " + v.Kind, HTML: out.String()}
	for i, m := range v.Objects {
		if i == 0 {
			c.Title = m.Phase + ": " + m.Name
		}
		c.Say += fmt.Sprintf("%s is in phase %s. ", m.Name, m.Phase)
	}
	if v.Trouble != "" {
		c.Title = "Stale: " + c.Title
		c.Say += "The API server does not answer."
	}
	return c, nil
}

func (s *Server) view() view {
	snapshot, now := s.Look(), s.Now()
	shown := snapshot.shown()
	v := view{Cluster: printable.Line(s.Cluster), Kind: printable.Line(s.Kind), Trouble: trouble(snapshot, now), More: len(snapshot.Objects) - len(shown)}
	for i, o := range shown {
		machine := s.Machine(o)
		seen, err := statusview.Of(machine, o, now, s.Caller)
		if err != nil {
			v.Trouble = cmp.Or(v.Trouble, printable.Line(err.Error()))
			continue
		}
		seen = printable.Value(seen)
		seen.Phase = cmp.Or(seen.Phase, "none yet")
		picture := graph.SVG(machine, graph.Options{Marks: graph.MarkObject(machine, o.String(), &o.Machine)})
		v.Objects = append(v.Objects, object{Overview: seen, ID: i, Diagram: template.HTML(picture)}) //nolint:gosec // draw.SVG escapes what it is given
	}
	return v
}

// trouble says why what is shown may be old; empty when it is not.
func trouble(s Snapshot, now time.Time) string {
	why := ""
	if s.Trouble != nil {
		why = ": " + printable.Line(s.Trouble.Error())
	}
	switch {
	case s.Answered.IsZero() && s.Trouble == nil:
		return "The API server is being asked."
	case s.Answered.IsZero():
		return "The API server has not answered yet" + why
	case s.Trouble != nil || now.Sub(s.Answered) > stale:
		return fmt.Sprintf("Stale: the API server does not answer. What is shown is from %s%s", clock(&s.Answered), why)
	}
	return ""
}

// clock is a time as a wall clock shows it, with the zone that logs have.
func clock(t *time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// span is a length of time in the two units that matter.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 0:
		return "0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// share is a part of a whole in percent, down to the whole number: 100 means all.
func share(done, total int64) int64 {
	if total <= 0 {
		return 0
	}
	return min(100, done*100/total)
}
