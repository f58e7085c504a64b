package datastoremigration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources"
)

func TestReadSize(t *testing.T) {
	const others = "# TYPE apiserver_storage_size_bytes gauge\napiserver_storage_objects{resource=\"pods\"} 7\napiserver_storage_size_bytes_other 99999999\n"
	for name, tt := range map[string]struct {
		metrics string
		want    int64
		unknown bool
	}{
		"one":                            {metrics: others + `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 2.097152e+06` + "\n", want: 2 << 20},
		"one of its own for Events":      {metrics: `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 20` + "\n" + `apiserver_storage_size_bytes{storage_cluster_id="etcd-1"} 10` + "\n", want: 20},
		"of an API server that has none": {metrics: others, unknown: true},
	} {
		got, err := readSize(strings.NewReader(tt.metrics))
		if got != tt.want || errors.Is(err, errNoSize) != tt.unknown || err != nil && !tt.unknown {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

func TestJudgeSpace(t *testing.T) {
	const gib = 1 << 30
	for name, tt := range map[string]struct {
		adds, size, quota int64
		given             bool
		unknown           error
		level             check.Level
		says              string
	}{
		"room":              {adds: gib / 2, size: gib, quota: 2 * gib, level: check.Info, says: "add some 512 MiB to etcd, which has 1024 MiB now, of a quota of 2048 MiB (etcd's default)"},
		"none":              {adds: gib, size: gib, quota: 2 * gib, level: check.Failure, says: "--store-quota"},
		"a larger quota":    {adds: gib, size: gib, quota: 8 * gib, given: true, level: check.Info, says: "of a quota of 8192 MiB"},
		"nearly full":       {adds: 1, size: 19 * gib / 10, quota: 2 * gib, level: check.Failure, says: "add some 1 MiB"},
		"size is not known": {adds: gib, quota: 2 * gib, unknown: errNoSize, level: check.Warning, says: "grant get of the path /metrics"},
	} {
		got := judgeSpace(tt.adds, tt.size, tt.quota, tt.given, tt.unknown)
		if len(got) != 1 || got[0].Level != tt.level || !strings.Contains(got[0].String(), tt.says) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The less room, the sooner; never all the time.
func TestNextLook(t *testing.T) {
	const quota = 2 << 30
	for size, want := range map[int64]time.Duration{0: storeLate, quota * 9 / 10: storeSoon, quota: storeSoon, quota*9/10 - 5*storeGrowth: 5 * time.Second} {
		if got := nextLook(size, quota).Round(time.Second); got != want {
			t.Errorf("with %d bytes in %s, want %s", size, got, want)
		}
	}
}

// Handing over stores every object once more, in a store that may have grown since the copies were made.
func TestHandingOverWaitsForRoom(t *testing.T) {
	const used = 19 * mebibyte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %d\n", sizeMetric, used)
	}))
	defer server.Close()
	api, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	must(t, err)
	s := newEffects(nil, Settings{Registry: resources.Default(), Discovery: api, StoreQuota: 20 * mebibyte}) // no client: nothing is written
	_, err = s.door.handOverFields(t.Context(), &scope{Object: &migration{}, Clock: clock.RealClock{}})
	if !isWait(err) || !strings.Contains(err.Error(), "etcd has 19 MiB of a quota of 20 MiB, and at most 90 % may be used") {
		t.Errorf("it says %v", err)
	}
}
