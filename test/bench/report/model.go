package report

import (
	"fmt"
	"math"
)

// Model says that something takes Fixed seconds, and Each more for every object.
type Model struct {
	Fixed, Each float64
	// Of are the sizes that it was fitted to, Left those that it was not.
	Of, Left []int
	// Worst is the largest relative error on a size of Left; NaN where there is none.
	Worst float64
}

// At is what the model expects of so many objects, in seconds.
func (m Model) At(objects int) float64 { return m.Fixed + m.Each*float64(objects) }

// Fit fits the medians of a metric at the smallest and at the largest size, and judges
// by those between. It is false where there are no two sizes.
func Fit(f *Figures, c Contender, metric Metric) (Model, bool) {
	var sizes []int
	for _, n := range f.Sizes() {
		if _, has := f.Median(c, n, metric); has {
			sizes = append(sizes, n)
		}
	}
	if len(sizes) < 2 {
		return Model{}, false
	}
	first, last := sizes[0], sizes[len(sizes)-1]
	low, _ := f.Median(c, first, metric)
	high, _ := f.Median(c, last, metric)
	each := (high - low) / float64(last-first)
	m := Model{Fixed: low - each*float64(first), Each: each, Of: []int{first, last}, Left: sizes[1 : len(sizes)-1], Worst: math.NaN()}
	for _, n := range m.Left {
		seen, _ := f.Median(c, n, metric)
		if off := math.Abs(m.At(n)-seen) / seen; !(off <= m.Worst) {
			m.Worst = off
		}
	}
	return m, true
}

// judged tells the error of a model, for people.
func (m Model) judged() string {
	if math.IsNaN(m.Worst) {
		return "not known: there is no third size"
	}
	return fmt.Sprintf("%.0f %% at %s objects", 100*m.Worst, join(m.Left))
}
