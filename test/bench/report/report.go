// Package report makes a document and a chart of what test/bench has measured. It is
// pure: the same figures always give the same text, so that RESULTS.md can be checked
// against the figures beside it.
package report

import (
	"fmt"
	"slices"
	"time"
)

// Contender is one way to bring the objects from v1 to v3, or a yardstick for them.
type Contender string

// The contenders, in the order in which they are shown.
const (
	RawSmall  Contender = "raw creates of IPAMHandles"
	Raw       Contender = "raw creates of the mix"
	Shipped   Contender = "control, as shipped"
	Unlimited Contender = "control, no client limits"
	UnderLock Contender = "ours, copying under the lock"
	Ahead     Contender = "ours, copying ahead"
	Served    Contender = "ours, v3 served from its CRDs"
	Two       Contender = "ours, two API servers"
	Alone     Contender = "ours, no other client"
	Beside    Contender = "ours, beside other clients"
	Quiet     Contender = "ours, as the chart installs it, few seats"
	Flooded   Contender = "ours, as the chart installs it, flooded"
	Whole     Contender = "ours, to the end of the clean-up, beside other clients"
)

// Contenders are all of them.
func Contenders() []Contender {
	return []Contender{RawSmall, Raw, Shipped, Unlimited, UnderLock, Ahead, Served, Two, Alone, Beside, Quiet, Flooded, Whole}
}

// Metric is one figure of a run.
type Metric string

// The metrics. Seconds are those of the clock unless CPU is said.
const (
	// Locked is from the first moment at which a v1 client is refused, or sees
	// datastoreReady false, to v3's datastoreReady true; seen from outside.
	Locked Metric = "locked, s"
	// Total is from the creation of the DatastoreMigration to Converged.
	Total Metric = "total, s"
	// Rate is objects a second over Total.
	Rate Metric = "objects/s"
	// Writes, DryRuns and Reads are requests for each object, of whoever migrates,
	// about Calico's two groups and DatastoreMigrations. Lists are pages, in all.
	Writes  Metric = "writes/object"
	DryRuns Metric = "dry runs/object"
	Reads   Metric = "GETs/object"
	Lists   Metric = "lists"
	// CPU is of all servers of the cluster and of whoever migrates, ManagerCPU of the
	// manager alone, ms; both for each object.
	CPU        Metric = "CPU ms/object"
	ManagerCPU Metric = "manager CPU ms/object"
	// Peak is the most memory that the manager ever had resident, MiB.
	Peak Metric = "manager peak, MiB"
	// Load is how busy the machine was just before, as Linux counts it.
	Load Metric = "load before"
)

// Metrics are all of them, in the order in which they are shown.
func Metrics() []Metric {
	return []Metric{Locked, Total, Rate, Writes, DryRuns, Reads, Lists, CPU, ManagerCPU, Peak, Load}
}

// Run is one measured run. What a contender does not have is not in Figures.
type Run struct {
	Contender Contender
	Objects   int
	// Repeat counts from 1; runs of the same size and repeat were made one after the
	// other.
	Repeat  int
	Figures map[Metric]float64
	// Commit is that of the manager.
	Commit string
	// Stages and Late are those of Whole.
	Stages []Stage `json:",omitempty"`
	Late   []Late  `json:",omitempty"`
}

// Client is a client of the API server that has nothing to do with a migration, and makes 20 requests a second.
type Client struct {
	Name string
	// Limit is how many times as long as before the migration its p99 may be while that copies ahead.
	Limit float64
}

// The names of the other clients, by what they ask.
const (
	Reader = "GETs"
	Writer = "writes"
)

// Clients are all of them.
func Clients() []Client { return []Client{{Reader, 2}, {Writer, 2.5}} }

// Percentiles are those of the latencies of Clients.
func Percentiles() []int { return []int{50, 99} }

// Idle is a percentile of its latency before a migration, ms.
func (c Client) Idle(p int) Metric { return c.metric("idle", p) }

// Copying is the same while the migration copies ahead.
func (c Client) Copying(p int) Metric { return c.metric("copying", p) }

func (c Client) metric(when string, p int) Metric {
	return Metric(fmt.Sprintf("%s, %s p%d, ms", c.Name, when, p))
}

// Stage is what was seen of one step of a migration, over all its runs.
type Stage struct {
	// Name is that of the step.
	Name string
	// Seconds is for how long it ran, Requests how many it sent; watches are not counted.
	Seconds  float64
	Requests int
	// Felt is the p99 of what each of Clients asked meanwhile, ms; the slowest, where that is fewer than 100.
	Felt map[string]float64
	// Memory is the most that kube-apiserver had resident, MiB.
	Memory float64
}

// LateLimit is how long a request of another client may take before it is named.
const LateLimit = 100 * time.Millisecond

// Late is a request of another client that took longer.
type Late struct {
	// At is when it was sent, in seconds from its client's first one.
	At     float64
	Client string
	// Took is in ms.
	Took float64
	// Stage is what was at work, Ours what we asked meanwhile.
	Stage, Ours string
}

// Figures are all that was measured on one machine.
type Figures struct {
	// Machine, Date and Commands tell how, for people.
	Machine, Date string
	Commands      []string
	Runs          []Run
}

// Sizes are the numbers of objects that were measured, ascending.
func (f *Figures) Sizes() []int {
	var sizes []int
	for _, r := range f.Runs {
		sizes = append(sizes, r.Objects)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Median is of all repeats; false when there is none.
func (f *Figures) Median(c Contender, objects int, m Metric) (float64, bool) {
	var all []float64
	for _, r := range f.Runs {
		if v, has := r.Figures[m]; has && r.Contender == c && r.Objects == objects {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
}

// Has tells whether a run was measured.
func (f *Figures) Has(c Contender, objects, repeat int) bool {
	return slices.ContainsFunc(f.Runs, func(r Run) bool { return r.Contender == c && r.Objects == objects && r.Repeat == repeat })
}

// Repeats is how often a contender was measured at a size.
func (f *Figures) Repeats(c Contender, objects int) int {
	n := 0
	for _, r := range f.Runs {
		if r.Contender == c && r.Objects == objects {
			n++
		}
	}
	return n
}

// Sizes are the numbers of objects of a complete document.
func Sizes() []int { return []int{flatFrom, barSize, flatTo, hugeSize} }

// Wanted is how often a complete document has a contender at one of Sizes: everything at the size of most promises; at the
// others what grows. The control as shipped waits for its own limits, not for the machine, and takes ten minutes at 20,000.
func Wanted(c Contender, objects int) int {
	grows := slices.Contains([]Contender{RawSmall, Raw, Shipped, Unlimited, UnderLock, Ahead}, c)
	switch {
	case objects == hugeSize && c == Ahead, objects == flatTo && c == Shipped, objects == barSize && c == Whole:
		return 1
	case objects == barSize, grows && objects != hugeSize:
		return 3
	}
	return 0
}

// number shows three digits or more, never an exponent.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
