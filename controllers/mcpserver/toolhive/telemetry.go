package toolhive

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

const (
	telemetryCADir    = "/config/certs/otel/"
	telemetryCAVolume = "otel-ca-bundle-"
	// telemetryHeaderEnv begins the variables of headers that are secret.
	telemetryHeaderEnv = "TOOLHIVE_OTEL_HEADER_"
)

// Telemetry is where traces and metrics go.
type Telemetry struct {
	Endpoint            string            `json:"endpoint,omitempty"`
	ServiceName         string            `json:"serviceName,omitempty"`
	TracingEnabled      bool              `json:"tracingEnabled"`
	MetricsEnabled      bool              `json:"metricsEnabled"`
	SamplingRate        string            `json:"samplingRate,omitempty"`
	Headers             map[string]string `json:"headers,omitempty"`
	Insecure            bool              `json:"insecure,omitempty"`
	PrometheusPath      bool              `json:"enablePrometheusMetricsPath,omitempty"`
	OnTransportPort     *bool             `json:"metricsOnTransportPort,omitempty"`
	CustomAttributes    map[string]string `json:"customAttributes,omitempty"`
	UseLegacyAttributes bool              `json:"useLegacyAttributes"`
	CACertPath          string            `json:"caCertPath,omitempty"`
}

// telemetrySpec is the spec of an MCPTelemetryConfig.
type telemetrySpec struct {
	OpenTelemetry *openTelemetry `json:"openTelemetry"`
	Prometheus    struct {
		Enabled                bool  `json:"enabled"`
		MetricsOnTransportPort *bool `json:"metricsOnTransportPort"`
	} `json:"prometheus"`
}

type openTelemetry struct {
	Enabled            bool              `json:"enabled"`
	Endpoint           string            `json:"endpoint"`
	Insecure           bool              `json:"insecure"`
	Headers            map[string]string `json:"headers"`
	ResourceAttributes map[string]string `json:"resourceAttributes"`
	SensitiveHeaders   []struct {
		Name         string    `json:"name"`
		SecretKeyRef SecretKey `json:"secretKeyRef"`
	} `json:"sensitiveHeaders"`
	CABundleRef *caBundle `json:"caBundleRef"`
	Tracing     struct {
		Enabled      bool   `json:"enabled"`
		SamplingRate string `json:"samplingRate"`
	} `json:"tracing"`
	Metrics struct {
		Enabled bool `json:"enabled"`
	} `json:"metrics"`
	UseLegacyAttributes bool `json:"useLegacyAttributes"`
}

func (p *Proxy) addTelemetry(srv *v1beta1.MCPServer, named Objects) *InvalidError {
	const field = "telemetryConfigRef"
	if srv.Spec.TelemetryConfigRef == nil {
		return nil
	}
	var ref struct {
		Name        string `json:"name"`
		ServiceName string `json:"serviceName"`
	}
	var spec telemetrySpec
	if err := decodeField(field, srv.Spec.TelemetryConfigRef, &ref); err != nil {
		return err
	}
	if err := decodeSpec(field, named.Telemetry, &spec); err != nil {
		return err
	}
	service := cmp.Or(ref.ServiceName, srv.Name)
	t := &Telemetry{ServiceName: service, PrometheusPath: spec.Prometheus.Enabled, OnTransportPort: spec.Prometheus.MetricsOnTransportPort}
	p.addVar("OTEL_RESOURCE_ATTRIBUTES", fmt.Sprintf("service.name=%s,service.namespace=%s", service, srv.Namespace))
	p.Config.Telemetry = t
	if otel := spec.OpenTelemetry; otel != nil && otel.Enabled {
		return p.addCollector(t, otel, field, ref.Name)
	}
	return nil
}

// addCollector is where OpenTelemetry goes; one that is not enabled goes nowhere.
func (p *Proxy) addCollector(t *Telemetry, otel *openTelemetry, field, name string) *InvalidError {
	// The program wants a host and a port.
	t.Endpoint = strings.TrimPrefix(strings.TrimPrefix(otel.Endpoint, "https://"), "http://")
	t.Insecure, t.Headers, t.CustomAttributes, t.UseLegacyAttributes = otel.Insecure, otel.Headers, otel.ResourceAttributes, otel.UseLegacyAttributes
	t.TracingEnabled, t.MetricsEnabled = otel.Tracing.Enabled, otel.Metrics.Enabled
	if text := otel.Tracing.SamplingRate; text != "" {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate < 0 || rate > 1 {
			return invalid(field, "MCPTelemetryConfig %s has the sampling rate %q: write one from 0 to 1", name, text)
		}
		t.SamplingRate = strconv.FormatFloat(rate, 'f', -1, 64)
	}
	for _, h := range otel.SensitiveHeaders {
		p.addEnv(telemetryHeaderEnv+strings.ToUpper(strings.ReplaceAll(h.Name, "-", "_")), h.SecretKeyRef)
	}
	if at, ok := otel.CABundleRef.key(); ok {
		dir := telemetryCADir + at.Name
		p.addFile(telemetryCAVolume+at.Name, dir, at)
		t.CACertPath = dir + "/" + at.Key
	}
	return nil
}
