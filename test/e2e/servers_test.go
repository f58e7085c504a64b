package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// waitingWrites is how many writes wait in an API server while it does not work.
const waitingWrites = 40

// moreServers adds API servers to the cluster of a test, which lists all of them where a real cluster does. The first one of the
// cluster is the first of those returned.
func (w *world) moreServers(t *testing.T, kinds ...serverKind) []*apiServer {
	t.Helper()
	all := []*apiServer{{name: harness.APIServer, config: w.Config, through: w.Client}}
	configs := []*rest.Config{w.Config}
	for i, kind := range kinds {
		s := &apiServer{name: fmt.Sprintf("%s-%d", harness.APIServer, i+2), kind: kind}
		var err error
		if s.process, s.config, err = w.AddAPIServer(t.Context(), s.name, kind.program, kind.flags...); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.process.Kill(context.Background()); err != nil {
				t.Error(err)
			}
		})
		if kind.late > 0 {
			s.config = ending(t, func() (*rest.Config, func() error, error) { return harness.Slow(s.config, kind.late) })
		}
		if s.through, err = client.New(s.config, client.Options{Scheme: w.Client.Scheme(), Mapper: w.Client.RESTMapper()}); err != nil {
			t.Fatal(err)
		}
		all, configs = append(all, s), append(configs, s.config)
	}
	ending(t, func() (struct{}, func() error, error) {
		end, err := w.Advertise(t.Context(), configs...)
		return struct{}{}, end, err
	})
	return all
}

// ending makes something that ends with the test.
func ending[T any](t *testing.T, of func() (T, func() error, error)) T {
	t.Helper()
	made, end, err := of()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return made
}

// While nothing is locked, an API server that has just started lets everybody write v1, although it does not know for half
// a minute what the fence looks at. One that does not work for a while has not heard of the lock, and lets those writes in
// that waited in it: none of them is lost, for nothing is read as final before every API server has refused a write.
func TestEveryAPIServer(t *testing.T) {
	rounds := 1
	if os.Getenv("FAULTS") == "all" {
		rounds = 20
	}
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "compared")
	w.awaitGate(t, setup.MigrationName, "compared")
	second := w.moreServers(t, serverKind{})[1]
	server, through := second.process, second.through
	if err := through.Create(t.Context(), guarded(v1, "GlobalNetworkSet", "early"), client.DryRunAll); err != nil {
		t.Errorf("nothing is locked, and an API server that has just started answers %v", err)
	}
	w.goOn(t, "fenced")
	w.awaitGate(t, setup.MigrationName, "fenced")
	asked := second.metrics(t)
	for _, kind := range w.Registry.All() { // else it would get ready for them under the lock: 2 s, and more with many objects
		if len(asked.With("apiserver_request_total", "group", resources.V3Group, "resource", kind.V3Plural(), "verb", "LIST")) == 0 {
			t.Errorf("v1 is about to be locked, and nobody has asked the second API server for %s of v3 yet", kind.V3Plural())
		}
	}

	lost, accepted := 0, 0
	for round := range rounds {
		before, moment := "fenced", time.Duration(0)
		if round > 0 {
			before, moment = "begin", time.Duration(rand.Int64N(int64(3*time.Second)))
			w.start(t, setup.MigrationName, before)
		}
		w.awaitGate(t, setup.MigrationName, before)
		in, gone := w.frozenRound(t, server, through, round, moment)
		t.Logf("frozen %s after %s: %d of %d writes that waited were accepted, %d are not in v3", moment, before, in, waitingWrites, gone)
		lost, accepted = lost+gone, accepted+in
	}
	if lost > 0 {
		t.Errorf("%d of %d writes that v1 accepted are not in v3, when both sides have been compared", lost, accepted)
	}
}

// metrics are those of the server.
func (s *apiServer) metrics(t *testing.T) harness.Families {
	t.Helper()
	asking, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := harness.Scrape(t.Context(), asking, s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

// frozenRound stops the server so long after the migration goes on, lets writes wait in it until v3 is about to be opened
// or would be, and tells how many of them v1 has accepted, and how many of those are not in v3.
func (w *world) frozenRound(t *testing.T, server *harness.Server, through client.Client, round int, moment time.Duration) (accepted, lost int) {
	t.Helper()
	if moment > 0 {
		w.goOn(t, "verified")
		time.Sleep(moment)
	}
	if err := server.Suspend(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Resume() }() // when the test ends early
	name := func(i int) string { return fmt.Sprintf("frozen-%d-%d", round, i) }
	errs, writing := make([]error, waitingWrites), sync.WaitGroup{}
	for i := range waitingWrites {
		writing.Go(func() { errs[i] = through.Create(t.Context(), guarded(v1, "GlobalNetworkSet", name(i))) })
	}
	if moment == 0 {
		w.goOn(t, "verified")
	}
	_ = harness.Await(t.Context(), "the migration to go on without it", 3*time.Second, func(context.Context) error {
		return nilIf(w.read(t, setup.MigrationName).Status.Message == gateMessage("verified"))
	}) // which it should not
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	writing.Wait()
	w.awaitGate(t, setup.MigrationName, "verified")
	for i, err := range errs {
		if err == nil {
			accepted++
			lost += w.missingInV3(t, name(i))
		} else if !apierrs.IsForbidden(err) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	w.remove(t, setup.MigrationName)
	for i := range waitingWrites {
		if err := client.IgnoreNotFound(w.Client.Delete(t.Context(), guarded(v1, "GlobalNetworkSet", name(i)))); err != nil {
			t.Fatal(err)
		}
	}
	return accepted, lost
}

func (w *world) missingInV3(t *testing.T, name string) int {
	t.Helper()
	err := w.Client.Get(t.Context(), client.ObjectKey{Name: name}, guarded(v3, "GlobalNetworkSet", name))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return 1
	}
	return 0
}
