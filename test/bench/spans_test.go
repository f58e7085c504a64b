package bench

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spansArrive is more than the time for which the manager keeps a span that has ended.
const spansArrive = 7 * time.Second

// spans are those that a manager has sent, as to a collector of OpenTelemetry: they tell when each step was at work.
type spans struct {
	*httptest.Server

	mu   sync.Mutex
	seen []*trace.Span
	err  error
}

// collectSpans listens until the caller closes it.
func collectSpans() *spans {
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		sent, err := spansOf(req)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen, s.err = append(s.seen, sent...), cmp.Or(s.err, err)
	}))
	return s
}

func spansOf(req *http.Request) ([]*trace.Span, error) {
	data, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if req.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		if data, err = io.ReadAll(unpacked); err != nil {
			return nil, err
		}
	}
	var sent collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		return nil, fmt.Errorf("read spans: %w", err)
	}
	var all []*trace.Span
	for _, of := range sent.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			all = append(all, scope.GetSpans()...)
		}
	}
	return all, nil
}

// atWork is a time during which a step ran.
type atWork struct {
	stage    string
	from, to time.Time
}

// steps are the times at which steps ran, in their order.
func (s *spans) steps() ([]atWork, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stepsOf(s.seen), s.err
}

func stepsOf(seen []*trace.Span) []atWork {
	var all []atWork
	for _, span := range seen {
		for _, a := range span.GetAttributes() {
			if a.GetKey() == "phasegate.step" {
				all = append(all, atWork{a.GetValue().GetStringValue(), time.Unix(0, int64(span.GetStartTimeUnixNano())), time.Unix(0, int64(span.GetEndTimeUnixNano()))})
			}
		}
	}
	slices.SortFunc(all, func(a, b atWork) int { return a.from.Compare(b.from) })
	locked := false
	for i, w := range all {
		if locked = locked && w.stage != "UnlockV3"; locked {
			all[i].stage += ", v1 locked" // some steps run before the lock, too
		}
		locked = locked || w.stage == "LockV1"
	}
	return all
}

// Spans arrive by when they ended. What runs before the lock and under it is told apart.
func TestStepsOfSpans(t *testing.T) {
	step := func(name string, from, to uint64) *trace.Span {
		return &trace.Span{StartTimeUnixNano: from, EndTimeUnixNano: to, Attributes: []*common.KeyValue{
			{Key: "phasegate.step", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: name}}},
		}}
	}
	got := stepsOf([]*trace.Span{step("UnlockV3", 60, 70), step("LockV1", 30, 40), step("CopyResources", 50, 60), step("CopyResources", 10, 20), {StartTimeUnixNano: 5, EndTimeUnixNano: 80}})
	at := func(stage string, from, to int64) atWork { return atWork{stage, time.Unix(0, from), time.Unix(0, to)} }
	want := []atWork{at("CopyResources", 10, 20), at("LockV1", 30, 40), at("CopyResources, v1 locked", 50, 60), at("UnlockV3", 60, 70)}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(atWork{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
