package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// large objects take more of the store than all others together.
const (
	largeObjects = 40
	largeSize    = 200 << 10
	mebibyte     = 1 << 20
)

// Objects are stored twice. What has no room is named before anything is copied; a copy that would fill the store
// stops before it does; and one that has filled it, because its quota is smaller than was said, makes room again.
func TestStoreFull(t *testing.T) {
	w := pristine(t)
	var large []client.Object
	for i := range largeObjects {
		obj := feed(fmt.Sprintf("large-%d", i))
		obj.SetAnnotations(map[string]string{"filler": strings.Repeat("x", largeSize)})
		large = append(large, obj)
	}
	w.lend(t, large...)
	before := w.stored(t)

	t.Run("named before", func(t *testing.T) {
		quota := "--store-quota=" + strconv.FormatInt(w.storeSize(t)+4*mebibyte, 10)
		w.manager(t, quota)
		w.start(t, setup.MigrationName, nowhere)
		w.awaitMessage(t, setup.MigrationName, "store-space: the copies add some ")
		w.said(t, "kubectl phasegate plan "+quota, 1, "× store-space: the copies add some ", "MiB to etcd, which has ")
		w.said(t, "kubectl phasegate plan", 0, "✓ the copies add some ", " MiB now, of a quota of 2048 MiB (etcd's default)")
		w.remove(t, setup.MigrationName)
	})
	t.Run("stopped before", func(t *testing.T) {
		w.atDoor(t)
		w.manager(t, "--phases-dir", gated(t), "--store-quota", strconv.FormatInt(w.storeSize(t), 10))
		w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore(nowhere)})
		dm := w.await(t, setup.MigrationName, "Failed")
		if !strings.Contains(dm.Status.Message, "the copies need more room than there is: etcd has ") {
			t.Errorf("it says %q", dm.Status.Message)
		}
		w.assertNothingLocked(t, dm)
		w.remove(t, setup.MigrationName)
	})
	t.Run("full", func(t *testing.T) {
		w.atDoor(t)
		w.shrinkStore(t)
		w.limitStore(t, w.storeSize(t)+2*mebibyte)
		defer w.limitStore(t, 1<<30)
		w.manager(t, "--phases-dir", gated(t))
		w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore(nowhere)})
		said := w.awaitFull(t)
		if !strings.Contains(said, "database space exceeded") {
			t.Errorf("status says %q", said)
		}
		harness.Eventually(t, "the copies to go", func() error {
			left := slices.DeleteFunc(w.stored(t), func(key string) bool { return !strings.Contains(key, "large-") })
			if len(left) > 0 {
				return fmt.Errorf("%d are left", len(left))
			}
			return nil
		})
		w.limitStore(t, 1<<30)
		w.annotate(t, setup.MigrationName, map[string]string{"look": "again"}) // not as late as the manager would
		dm := w.await(t, setup.MigrationName, "Failed")
		if !strings.Contains(dm.Status.Message, "etcd is full") {
			t.Errorf("it says %q", dm.Status.Message)
		}
		w.assertNothingLocked(t, dm)
		w.remove(t, setup.MigrationName)
	})
	if after := w.stored(t); !slices.Equal(before, after) {
		t.Errorf("v3 stores %d objects, and did %d before", len(after), len(before))
	}
}

// atDoor has a migration that is about to copy its first object, and no manager.
func (w *world) atDoor(t *testing.T) {
	t.Helper()
	manager := w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "compared")
	w.awaitGate(t, setup.MigrationName, "compared")
	if err := manager.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
}

var sizeOfStore = regexp.MustCompile(`(?m)^apiserver_storage_size_bytes\{.*\} (.+)$`)

func (w *world) storeSize(t *testing.T) int64 {
	t.Helper()
	found := sizeOfStore.FindStringSubmatch(w.kubectl(t, "get", "--raw", "/metrics"))
	if found == nil {
		t.Fatal("the API server does not say how large its store is")
	}
	size, err := strconv.ParseFloat(found[1], 64)
	w.do(t, err)
	return int64(size)
}

// limitStore starts etcd with another quota, and lifts its alarm, as an administrator does.
func (w *world) limitStore(t *testing.T, quota int64) {
	t.Helper()
	server, url := w.etcdOf(t)
	etcd, err := w.Server(harness.Etcd)
	w.do(t, err)
	w.do(t, etcd.Kill(context.Background()))
	w.do(t, etcd.Revive(fmt.Sprintf("--quota-backend-bytes=%d", quota)))
	harness.Eventually(t, "etcd to lift its alarm", func() error {
		raised, err := askEtcd(url+"/v3/maintenance/alarm", map[string]any{"action": "GET"})
		for _, alarm := range raised.Alarms {
			if err == nil {
				_, err = askEtcd(url+"/v3/maintenance/alarm", map[string]any{"action": "DEACTIVATE", "memberID": alarm.MemberID, "alarm": alarm.Alarm})
			}
		}
		return err
	})
	w.do(t, w.AwaitReady(context.Background(), server))
}

// shrinkStore leaves etcd no page that is free: what is written after it makes it larger, whenever the API server has
// compacted it.
func (w *world) shrinkStore(t *testing.T) {
	t.Helper()
	_, url := w.etcdOf(t)
	now, err := askEtcd(url+"/v3/maintenance/status", map[string]any{})
	w.do(t, err)
	_, err = askEtcd(url+"/v3/kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true})
	w.do(t, err)
	_, err = askEtcd(url+"/v3/maintenance/defragment", map[string]any{})
	w.do(t, err)
}

func (w *world) etcdOf(t *testing.T) (apiServer *harness.Server, url string) {
	t.Helper()
	apiServer, err := w.Server(harness.APIServer)
	w.do(t, err)
	url, err = apiServer.Flag("etcd-servers")
	w.do(t, err)
	return apiServer, url
}

// etcdAnswer is what of etcd's answers is of use here.
type etcdAnswer struct {
	Header struct{ Revision string }
	Alarms []struct{ MemberID, Alarm string }
	KVs    []struct{ Key, Value []byte }
	More   bool
}

func askEtcd(url string, question map[string]any) (answer etcdAnswer, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("it answers %s: %w", response.Status, err)
	}
	return answer, nil
}

// awaitFull is what the command line says of a store that takes no status any more.
func (w *world) awaitFull(t *testing.T) (said string) {
	t.Helper()
	harness.Eventually(t, "status to say that etcd is full", func() error {
		_, errs, _ := w.typed(t, "kubectl phasegate status "+setup.MigrationName)
		if said = errs; !strings.Contains(said, "etcd is full") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	return said
}
