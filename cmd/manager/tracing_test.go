package main

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A span that was begun and ended arrives at the collector before the process ends.
func TestExporter(t *testing.T) {
	cases := map[string]struct {
		why   string
		path  string
		ratio float64
		want  []string
	}{
		"all":          {why: "the default", ratio: 1, want: []string{"/v1/traces phasegate-manager " + version + " reconcile"}},
		"another path": {why: "a collector behind a gateway", path: "/otel/v1/traces", ratio: 1, want: []string{"/otel/v1/traces phasegate-manager " + version + " reconcile"}},
		"none":         {why: "a ratio of 0 is off", ratio: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				got = append(got, spansOf(t, req)...)
			}))
			defer server.Close()
			o := tracingOptions{endpoint: server.URL + c.path, ratio: c.ratio}
			end, err := o.start(t.Context(), logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			_, span := otel.Tracer("test").Start(t.Context(), "reconcile")
			span.End()
			end()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: path, service, version and span (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func spansOf(t *testing.T, req *http.Request) (all []string) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(req.Body)
		if err != nil {
			t.Error(err)
			return nil
		}
		body = unpacked
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	var sent collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		t.Error(err)
	}
	for _, of := range sent.ResourceSpans {
		where := req.URL.Path
		for _, a := range of.Resource.Attributes {
			where += " " + a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				all = append(all, where+" "+span.Name)
			}
		}
	}
	return all
}

// A collector that is not there costs spans and nothing else; the log tells it.
func TestCollectorIsAway(t *testing.T) {
	var said []string
	log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	o := tracingOptions{endpoint: away.URL, ratio: 1}
	ctx, cancel := context.WithCancel(t.Context())
	end, err := o.start(ctx, log)
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(ctx, "reconcile")
	span.End()
	cancel() // as at a shutdown
	end()
	if len(said) == 0 {
		t.Error("nobody tells that spans are lost")
	}
}
