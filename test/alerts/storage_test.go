package alerts

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory is a database of a few series. Prometheus's own one for tests needs a
// module that the proxy does not serve, and would take a minute more to build.
type memory struct {
	series []*stored
}

type stored struct {
	labels labels.Labels
	values []chunks.Sample
}

func (m *memory) add(of labels.Labels, at time.Duration, value float64) {
	i := slices.IndexFunc(m.series, func(s *stored) bool { return labels.Equal(s.labels, of) })
	if i < 0 {
		i, m.series = len(m.series), append(m.series, &stored{labels: of})
	}
	m.series[i].values = append(m.series[i].values, sample{at.Milliseconds(), value})
}

func (m *memory) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &set{}
			for _, s := range m.series {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
					found.left = append(found.left, storage.NewListSeries(s.labels, s.values))
				}
			}
			return found
		},
	}}
}

// set is a storage.SeriesSet.
type set struct {
	now  storage.Series
	left []storage.Series
}

func (s *set) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}

func (s *set) At() storage.Series              { return s.now }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

// sample is a chunks.Sample.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
