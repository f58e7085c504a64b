package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// flushTimeout is what a collector that does not answer may cost at the end.
const flushTimeout = 2 * time.Second

// tracingOptions say where spans go. Headers, certificates and compression are
// those of the environment variables OTEL_EXPORTER_OTLP_*.
type tracingOptions struct {
	endpoint string
	ratio    float64
}

func (o *tracingOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "tracing-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP), such as http://otel-collector:4318; default: no traces")
	f.Float64Var(&o.ratio, "tracing-sample-ratio", 1, "share of the reconciles that are traced, from 0 to 1")
}

func (o *tracingOptions) validate() error {
	if o.ratio < 0 || o.ratio > 1 {
		return fmt.Errorf("--tracing-sample-ratio: %v is not from 0 to 1: use 1 to trace every reconcile", o.ratio)
	}
	if o.endpoint == "" {
		return nil
	}
	_, err := o.url()
	return err
}

// url is where spans are posted: the endpoint, with the usual path if it has none.
func (o *tracingOptions) url() (*url.URL, error) {
	to, err := url.Parse(o.endpoint)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, fmt.Errorf("--tracing-endpoint: %q is not a URL: write http://HOST:4318 or https://…", o.endpoint)
	}
	if to.Path == "" || to.Path == "/" {
		to.Path = "/v1/traces"
	}
	return to, nil
}

// start makes spans go to the collector, from all of the process, until end. A
// collector that cannot be reached costs spans and nothing else.
func (o *tracingOptions) start(ctx context.Context, log logr.Logger) (end func(), err error) {
	if o.endpoint == "" {
		return func() {}, nil
	}
	to, err := o.url()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to.String()))
	if err != nil {
		return nil, fmt.Errorf("--tracing-endpoint: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(o.ratio)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "phasegate-manager"), attribute.String("service.version", version))),
	)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Info("spans are lost", "error", err.Error()) }))
	otel.SetTracerProvider(provider)
	return func() {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(flushing); err != nil {
			log.Info("the last spans are lost", "error", err.Error())
		}
	}, nil
}
