// Command chartplot draws a chart of lines, given as JSON on standard input, as SVG on
// standard output. Both axes are logarithmic. It is a module of its own, so that its
// libraries are nobody else's.
//
//	go run . <../locked.json >../locked.svg
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/wcharczuk/go-chart/v2"
)

// lines is what test/bench/report writes.
type lines struct {
	Title, X, Y string
	Lines       []struct {
		Name   string
		Points [][2]float64
	}
}

// The size of the picture, in pixels, and of what its lines are drawn with.
const (
	width, height = 900, 520
	stroke, dot   = 2, 4
)

func main() {
	if err := render(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chartplot:", err)
		os.Exit(1)
	}
}

// render reads a chart and writes its picture. Nothing is written when it fails.
func render(in io.Reader, out io.Writer) error {
	var l lines
	if err := json.NewDecoder(in).Decode(&l); err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	picture, err := draw(l)
	if err != nil {
		return fmt.Errorf("draw %q: %w", l.Title, err)
	}
	_, err = out.Write(picture)
	return err
}

// draw gives the library logarithms on plain axes: its own logarithmic one knows no
// values below 1.
func draw(l lines) ([]byte, error) {
	c := chart.Chart{
		Title: l.Title, Width: width, Height: height,
		Background: chart.Style{Padding: chart.Box{Top: 50, Left: 250}},
		XAxis:      chart.XAxis{Name: l.X}, YAxis: chart.YAxis{Name: l.Y},
	}
	var xs, ys []float64
	for i, line := range l.Lines {
		series := chart.ContinuousSeries{Name: line.Name, Style: chart.Style{
			StrokeColor: chart.GetDefaultColor(i), DotColor: chart.GetDefaultColor(i), StrokeWidth: stroke, DotWidth: dot,
		}}
		for _, p := range line.Points {
			if p[0] <= 0 || p[1] <= 0 {
				return nil, fmt.Errorf("%s has a point at %v: a logarithm needs more than 0", line.Name, p)
			}
			series.XValues, series.YValues = append(series.XValues, math.Log10(p[0])), append(series.YValues, math.Log10(p[1]))
		}
		xs, ys = append(xs, series.XValues...), append(ys, series.YValues...)
		c.Series = append(c.Series, series)
	}
	if len(xs) == 0 {
		return nil, errors.New("it has no points")
	}
	c.XAxis.Ticks, c.XAxis.Range = axis(xs)
	c.YAxis.Ticks, c.YAxis.Range = axis(ys)
	c.Elements = []chart.Renderable{chart.LegendLeft(&c)}
	var picture bytes.Buffer
	err := c.Render(chart.SVG, &picture)
	return picture.Bytes(), err
}

// axis reaches from the power of ten below the values to that above, with ticks at
// 1, 2 and 5 of each.
func axis(logs []float64) ([]chart.Tick, chart.Range) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range logs {
		low, high = min(low, math.Floor(v)), max(high, math.Ceil(v))
	}
	high = max(high, low+1)
	var ticks []chart.Tick
	for power := low; power <= high; power++ {
		for _, digit := range []float64{1, 2, 5} {
			value := digit * math.Pow(10, power)
			if at := math.Log10(value); at <= high+1e-9 {
				ticks = append(ticks, chart.Tick{Value: at, Label: strconv.FormatFloat(value, 'g', 6, 64)})
			}
		}
	}
	return ticks, &chart.ContinuousRange{Min: low, Max: high}
}
