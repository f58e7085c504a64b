package report

import "fmt"

// Bar is what was promised about the figures.
type Bar struct {
	What string
	// Limit is the most that Value may be; at least, where AtLeast is set; nothing is promised where it is 0.
	Limit   float64
	AtLeast bool
	// Value is false where the figures do not tell it.
	Value func(*Figures) (float64, bool)
}

// barSize is the number of objects for which most bars are set, and flatFrom and
// flatTo those between which the lock may hardly grow.
const (
	barSize  = 5000
	flatFrom = 1000
	flatTo   = 20000
	hugeSize = 100_000
)

// Bars are all that was promised.
func Bars() []Bar {
	ratio := func(c Contender, m Metric, of Contender, ofM Metric) func(*Figures) (float64, bool) {
		return func(f *Figures) (float64, bool) { return f.ratio(c, m, barSize, of, ofM, barSize) }
	}
	at := func(size int, c Contender, m Metric) func(*Figures) (float64, bool) {
		return func(f *Figures) (float64, bool) { return f.ratio(c, m, size, Raw, Total, size) }
	}
	figure := func(m Metric, size int) func(*Figures) (float64, bool) {
		return func(f *Figures) (float64, bool) { return f.Median(Ahead, size, m) }
	}
	growth := func(to, from int) func(*Figures) (float64, bool) {
		return func(f *Figures) (float64, bool) { return f.ratio(Ahead, Locked, to, Ahead, Locked, from) }
	}
	bars := []Bar{
		{What: "locked time, in raw creates", Limit: 0.06, Value: at(barSize, Ahead, Locked)},
		{What: "v3 served from its CRDs: locked time, in raw creates", Limit: 0.06, Value: at(barSize, Served, Locked)},
		{What: "two API servers: locked time, in raw creates", Limit: 0.06, Value: at(barSize, Two, Locked)},
		{What: "locked time of the control as shipped, in ours", Limit: 20, AtLeast: true, Value: ratio(Shipped, Locked, Ahead, Locked)},
		{What: "locked time of the control without limits, in ours", Limit: 6, AtLeast: true, Value: ratio(Unlimited, Locked, Ahead, Locked)},
		{What: fmt.Sprintf("locked time at %d objects, in that at %d", flatTo, flatFrom), Limit: 1.5, Value: growth(flatTo, flatFrom)},
		{What: fmt.Sprintf("locked time at %d objects, in that at %d", hugeSize, barSize), Limit: 2, Value: growth(hugeSize, barSize)},
		{What: "v3 served from its CRDs: locked time, in that with an aggregated API server", Limit: 1.3, Value: ratio(Served, Locked, Ahead, Locked)},
		{What: "flooded API server: locked time, in that of a quiet one", Limit: 2, Value: ratio(Flooded, Locked, Quiet, Locked)},
		{What: "no other client: total time, in raw creates", Limit: 2.2, Value: at(barSize, Alone, Total)},
		{What: "beside other clients: total time, in raw creates", Limit: 4, Value: at(barSize, Beside, Total)},
		{What: "copying under the lock: locked time, in raw creates", Limit: 1.25, Value: at(barSize, UnderLock, Locked)},
		{What: fmt.Sprintf("copying under the lock: locked time at %d objects, in raw creates", flatTo), Limit: 1.25, Value: at(flatTo, UnderLock, Locked)},
		{What: "locked time, in raw creates of small objects", Value: ratio(Ahead, Locked, RawSmall, Total)},
		{What: "total time, in raw creates of small objects", Value: ratio(Ahead, Total, RawSmall, Total)},
		{What: "copying under the lock: locked time, in raw creates of small objects", Value: ratio(UnderLock, Locked, RawSmall, Total)},
		{What: "writes for each object", Limit: 1.1, Value: figure(Writes, barSize)},
		{What: "GETs for each object: it is read in pages", Limit: 0.1, Value: figure(Reads, barSize)},
		{What: fmt.Sprintf("peak of the manager at %d objects, MiB", hugeSize), Limit: 256, Value: figure(Peak, hugeSize)},
	}
	for _, c := range Clients() {
		bars = append(bars, Bar{What: "p99 of another client's " + c.Name + " while copying ahead, in idle ones", Limit: c.Limit,
			Value: ratio(Beside, c.Copying(99), Beside, c.Idle(99))})
	}
	return bars
}

func (f *Figures) ratio(c Contender, m Metric, size int, of Contender, ofM Metric, ofSize int) (float64, bool) {
	a, hasA := f.Median(c, size, m)
	b, hasB := f.Median(of, ofSize, ofM)
	return a / max(b, 1e-9), hasA && hasB
}

// holds tells whether a value keeps a bar.
func (b Bar) holds(v float64) bool {
	if b.AtLeast {
		return v >= b.Limit
	}
	return b.Limit == 0 || v <= b.Limit
}

// Broken lists the bars that the figures tell to be broken.
func Broken(f *Figures) []string {
	var broken []string
	for _, b := range Bars() {
		if v, has := b.Value(f); has && !b.holds(v) {
			broken = append(broken, fmt.Sprintf("%s: %s, promised is %s", b.What, number(v), b.promise()))
		}
	}
	return broken
}

func (b Bar) promise() string {
	if b.Limit == 0 {
		return "nothing"
	}
	if b.AtLeast {
		return fmt.Sprintf("≥ %v", b.Limit)
	}
	return fmt.Sprintf("≤ %v", b.Limit)
}
