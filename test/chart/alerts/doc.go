// Package alerts tests the chart's alerting rules and dashboard with Prometheus' own
// evaluation of rules. It has a go.mod of its own, so that Prometheus never
// becomes a dependency of the product, and does not link the product: what the
// manager exports comes from docs/operate/metrics.md, which hack/metricsdocs
// writes from what is registered. plays/ has the series that a cluster's story
// leaves in Prometheus, in the notation of promtool's rule tests.
//
// Run it with -count=1: what it reads lies outside of its module, and go test takes
// an older result for a new one.
package alerts
