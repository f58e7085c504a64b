package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ChartFile is what the document calls its chart.
const ChartFile = "locked.svg"

// million is the size that nobody has measured and everybody asks for.
const million = 1_000_000

// Dependents are the objects outside Calico that a Calico object owns, in runs of Whole.
const Dependents = 100

// Markdown is the document.
func Markdown(f *Figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What a migration costs, measured\n\nWritten by `make bench`; do not edit. What the words mean and how it is measured: [doc.go](doc.go). What follows from it: [docs/scale.md](../../docs/scale.md).\n\n")
	fmt.Fprintf(&b, "- Machine: %s; the whole control plane and whoever migrates are on it; etcd does not sync to disk.\n- Date: %s\n- Commands: `%s`; commits of the manager: %s\n", f.Machine, f.Date, strings.Join(f.Commands, "`, `"), strings.Join(f.commits(), ", "))
	fmt.Fprintf(&b, "- Every run begins on a cluster of its own, made for it. Of each size and repeat, all contenders ran one after the other, so that what else the machine does meets all of them.\n")
	if busy := f.busiest(); busy > idleLoad {
		fmt.Fprintf(&b, "- **The machine was busy** with other work, up to a load of %.0f before a run: times and ratios of times say little, requests and memory are right.\n", busy)
	}
	if missing := f.missing(); len(missing) > 0 {
		fmt.Fprintf(&b, "\n**Not complete.** Still to be taken, on a machine with nothing else to do:\n\n- %s\n", strings.Join(missing, "\n- "))
	}
	f.promises(&b)
	f.medians(&b)
	f.latencies(&b)
	f.stages(&b)
	f.models(&b)
	f.raw(&b)
	return b.String()
}

// commits are those of the manager, in the order of the runs.
func (f *Figures) commits() []string {
	var all []string
	for _, r := range f.Runs {
		if !slices.Contains(all, r.Commit) {
			all = append(all, r.Commit)
		}
	}
	return all
}

// idleLoad is what a machine may be busy with before a run: what set the cluster up.
const idleLoad = 4

// busiest is the highest load before a run.
func (f *Figures) busiest() float64 {
	most := 0.0
	for _, r := range f.Runs {
		most = max(most, r.Figures[Load])
	}
	return most
}

// missing lists the figures that a complete document has and this one has not.
func (f *Figures) missing() []string {
	var missing []string
	for _, n := range Sizes() {
		var few []string
		for _, c := range Contenders() {
			if have, want := f.Repeats(c, n), Wanted(c, n); have < want {
				few = append(few, fmt.Sprintf("%s (%d of %d)", c, have, want))
			}
		}
		if len(few) > 0 {
			missing = append(missing, fmt.Sprintf("%d objects: %s", n, strings.Join(few, ", ")))
		}
	}
	return missing
}

func (f *Figures) promises(b *strings.Builder) {
	fmt.Fprintf(b, "\n## What was promised\n\nOf medians; at %d objects where no number is given. Raw creates are those of the mix. Nothing is promised against those of small objects: a plain client that makes the mix takes nearly twice as long as for as many of them, before anybody migrates.\n\n", barSize)
	rows := [][]string{}
	for _, bar := range Bars() {
		seen, verdict := "–", "not measured"
		if v, has := bar.Value(f); has {
			seen, verdict = number(v), "kept"
			if !bar.holds(v) {
				verdict = "**broken**"
			} else if bar.Limit == 0 {
				verdict = ""
			}
		}
		rows = append(rows, []string{bar.What, bar.promise(), seen, verdict})
	}
	table(b, []string{"what", "promised", "measured", ""}, rows)
}

func (f *Figures) medians(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Medians\n\n![locked time against number of objects](%s)\n", ChartFile)
	for _, n := range f.Sizes() {
		fmt.Fprintf(b, "\n### %d objects\n\n", n)
		var rows [][]string
		for _, c := range Contenders() {
			if f.Repeats(c, n) > 0 {
				rows = append(rows, append(f.row(c, n), f.times(c, n, Locked), f.times(c, n, Total)))
			}
		}
		table(b, append(append([]string{"contender", "runs"}, names()...), "locked/raw", "total/raw"), rows)
	}
	fmt.Fprintf(b, "\n`/raw` is a ratio to the median of %q in the same size.\n", Raw)
}

func names() []string {
	var all []string
	for _, m := range Metrics() {
		all = append(all, string(m))
	}
	return all
}

func (f *Figures) row(c Contender, n int) []string {
	row := []string{string(c), strconv.Itoa(f.Repeats(c, n))}
	for _, m := range Metrics() {
		cell := "–"
		if v, has := f.Median(c, n, m); has {
			cell = number(v)
		}
		row = append(row, cell)
	}
	return row
}

// times is a metric in raw creates of the same mix.
func (f *Figures) times(c Contender, n int, m Metric) string {
	if v, has := f.ratio(c, m, n, Raw, Total, n); has {
		return number(v)
	}
	return "–"
}

func (f *Figures) latencies(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Other clients\n\nTwo, beside %q: one reads a namespace, one writes a ConfigMap, each 20 times a second. Before the migration, and while it copies ahead; medians of runs, ms.\n\n", Beside)
	var rows [][]string
	for _, n := range f.Sizes() {
		for _, c := range Clients() {
			row := []string{strconv.Itoa(n), c.Name}
			for _, p := range Percentiles() {
				for _, m := range []Metric{c.Idle(p), c.Copying(p)} {
					if v, has := f.Median(Beside, n, m); has {
						row = append(row, number(v))
					}
				}
				if v, has := f.ratio(Beside, c.Copying(p), n, Beside, c.Idle(p), n); has {
					row = append(row, number(v))
				}
			}
			if len(row) > 2 {
				rows = append(rows, row)
			}
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(b, "Not measured yet: `make bench-neighbour`.\n")
		return
	}
	table(b, []string{"objects", "requests", "idle p50", "copying p50", "ratio", "idle p99", "copying p99", "ratio"}, rows)
}

func (f *Figures) stages(b *strings.Builder) {
	for _, r := range f.Runs {
		if r.Contender != Whole {
			continue
		}
		fmt.Fprintf(b, "\n### Each step, %d objects\n\nFrom before the migration to after its clean-up: for how long a step ran, what it asked, and what others noticed meanwhile: p99, ms, or the slowest where they asked fewer than 100 times. %d objects outside Calico have a Calico owner: they are detached and attached again. With an audit log, which costs the API server time.\n\n", r.Objects, Dependents)
		head := []string{"step", "s", "requests"}
		for _, c := range Clients() {
			head = append(head, c.Name)
		}
		var rows [][]string
		for _, s := range r.Stages {
			row := []string{s.Name, number(s.Seconds), strconv.Itoa(s.Requests)}
			for _, c := range Clients() {
				row = append(row, measured(s.Felt[c.Name]))
			}
			rows = append(rows, append(row, measured(s.Memory)))
		}
		table(b, append(head, "kube-apiserver, MiB"), rows)
		fmt.Fprintf(b, "\nRequests of others that took longer than %s: %d.\n", LateLimit, len(r.Late))
		if len(r.Late) == 0 {
			continue
		}
		b.WriteString("\n")
		rows = nil
		for _, l := range r.Late {
			rows = append(rows, []string{number(l.At), l.Client, number(l.Took), l.Stage, l.Ours})
		}
		table(b, []string{"s", "request", "ms", "step", "our requests meanwhile"}, rows)
	}
}

// measured is a number, or a dash where there is none.
func measured(v float64) string {
	if v == 0 {
		return "–"
	}
	return number(v)
}

func (f *Figures) models(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Model\n\nTime = fixed + each × objects, through the medians of the smallest and the largest size.\n\n")
	var rows [][]string
	for _, c := range Contenders() {
		for _, metric := range []Metric{Locked, Total} {
			m, fits := Fit(f, c, metric)
			if !fits {
				continue
			}
			rows = append(rows, []string{string(c), string(metric), number(m.Fixed), fmt.Sprintf("%.3f", 1000*m.Each), join(m.Of), m.judged(), number(m.At(million))})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(b, "It needs two sizes.\n")
		return
	}
	table(b, []string{"contender", "time", "fixed, s", "each, ms", "fitted to", "error where not fitted", fmt.Sprintf("at %d objects, s", million)}, rows)
}

func (f *Figures) raw(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Every run\n\nIn the order of running.\n\n")
	var rows [][]string
	for _, r := range f.Runs {
		row := []string{strconv.Itoa(r.Objects), strconv.Itoa(r.Repeat), string(r.Contender)}
		for _, m := range Metrics() {
			cell := "–"
			if v, has := r.Figures[m]; has {
				cell = number(v)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	table(b, append([]string{"objects", "repeat", "contender"}, names()...), rows)
}

func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r)
	}
}

func join(numbers []int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ", ")
}
