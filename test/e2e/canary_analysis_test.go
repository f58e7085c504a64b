package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// prometheus answers instant queries as Prometheus does, with one sample or, for an empty value, with none.
type prometheus struct {
	value atomic.Value
	asked atomic.Int64
}

const errorRate = `sum(rate(http_requests_total{app="shop-canary",code=~"5.."}[1m])) / sum(rate(http_requests_total{app="shop-canary"}[1m]))`

func (p *prometheus) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	answer.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/api/v1/query" || r.FormValue("query") != errorRate {
		answer.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(answer, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": unknown position: parse error: no expression found in input"}`)
		return
	}
	p.asked.Add(1)
	sample := ""
	if value := p.value.Load().(string); value != "" {
		sample = fmt.Sprintf(`{"metric":{},"value":[1767323045.678,%q]}`, value)
	}
	fmt.Fprintf(answer, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, sample)
}

// docs/extend/canary-analysis.md: good answers promote a canary step by step, whatever is killed; a bad one gives it the
// replicas that it had, and so does its deletion (CANARY_ROUNDS=20 is the long form).
func TestCanaryAnalysis(t *testing.T) {
	w := pristine(t)
	const namespace = "shop-canary"
	p := &prometheus{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	w.exampleIn(t, namespace, "canary-analysis", "canaryanalyses.example.com")
	w.kubectl(t, "create", "deployment", "shop-canary", "-n", namespace, "--image=shop:2", "--replicas=2")
	phases := directory(t, "canary-analysis/canary-analysis.yaml")
	file := filepath.Join(phases, "canary-analysis.yaml")
	replaceIn(t, file, "http://prometheus.monitoring.svc:9090", server.URL)
	replaceIn(t, file, "poll: 30s", "poll: 1s")
	args := asking(phases, server)
	manager := w.manager(t, args...)

	sample, err := os.ReadFile(example(t, "canary-analysis/sample.yaml"))
	w.do(t, err)
	own := filepath.Join(t.TempDir(), "sample.yaml")
	w.do(t, os.WriteFile(own, []byte(strings.Replace(string(sample), "namespace: shop\n", "namespace: "+namespace+"\n", 1)), 0o600))
	await := func(phase string) {
		t.Helper()
		w.kubectl(t, "wait", "--for=jsonpath={.status.phase}="+phase, "--timeout=90s", "-n", namespace, "canaryanalysis/shop-2")
	}
	replicas := func(want string) {
		t.Helper()
		if got := w.kubectl(t, "get", "deployment", "shop-canary", "-n", namespace, "-o", "jsonpath={.spec.replicas}"); got != want {
			t.Errorf("the canary has %s replicas, want %s", got, want)
		}
	}
	inTurn(t, "no data, then deleted", func(t *testing.T) {
		for _, none := range []string{"", "NaN"} {
			p.value.Store(none)
			w.kubectl(t, "apply", "-f", own)
			await("Analyzing")
			before := p.asked.Load()
			eventuallyAsked(t, p, before+7)
			await("Analyzing")
			replicas("1")
			w.kubectl(t, "delete", "--timeout=40s", "-n", namespace, "canaryanalysis/shop-2")
			replicas("2")
		}
	})
	inTurn(t, "bad", func(t *testing.T) {
		p.value.Store("0.5")
		w.kubectl(t, "apply", "-f", own)
		await("Failed")
		replicas("2")
		harness.Eventually(t, "an Event that says what Prometheus did", func() error {
			events := w.kubectl(t, "get", "events", "-n", namespace, "-o", "jsonpath={.items[*].message}")
			return nilUnless(strings.Contains(events, "v = 0.5"), events)
		})
		w.kubectl(t, "delete", "--timeout=40s", "-n", namespace, "canaryanalysis/shop-2")
	})
	p.value.Store("0.002")
	var before int64
	w.disturb(t, fromEnv("CANARY_ROUNDS", 1), manager, disturbed{
		object: []string{"-n", namespace, "canaryanalysis/shop-2"},
		within: 12 * time.Second, // three steps of five answers, a second apart, take longer
		begin: func(string) {
			w.kubectl(t, "scale", "deployment", "shop-canary", "-n", namespace, "--replicas=2")
			before = p.asked.Load()
			w.kubectl(t, "apply", "-f", own)
		},
		killed: func(label string) {
			await("Promoted")
			replicas("10")
			if asked := p.asked.Load() - before; asked < 15 {
				t.Errorf("%s: three steps with %d good answers, want five in a row for each", label, asked)
			}
		},
		deleted: func(string) { replicas("2") },
	}, args...)
	w.assertNoStates(t, "CanaryAnalysis")
}

func eventuallyAsked(t *testing.T, p *prometheus, times int64) {
	t.Helper()
	harness.Eventually(t, "Prometheus to be asked", func() error {
		return nilUnless(p.asked.Load() >= times, fmt.Sprint(p.asked.Load()))
	})
}
