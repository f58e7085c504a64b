package report

// Chart is what test/bench/chartplot draws: lines through points.
type Chart struct {
	Title, X, Y string
	Lines       []Line
}

// Line has a name and points, by X.
type Line struct {
	Name   string
	Points [][2]float64
}

// LockedChart shows the locked time against the number of objects; raw creates, which
// lock nothing, are there as the yardstick.
func LockedChart(f *Figures) Chart {
	c := Chart{Title: "Locked time against number of objects", X: "objects", Y: "locked, s"}
	for _, contender := range Contenders() {
		metric := Locked
		if contender == RawSmall || contender == Raw {
			metric = Total
		}
		line := Line{Name: string(contender)}
		for _, n := range f.Sizes() {
			if v, has := f.Median(contender, n, metric); has {
				line.Points = append(line.Points, [2]float64{float64(n), v})
			}
		}
		if len(line.Points) > 0 {
			c.Lines = append(c.Lines, line)
		}
	}
	return c
}
