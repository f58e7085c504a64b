package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// mostUnserved is how much a manager may ask while a kind is not served for a minute: of all kinds, its watches included.
const mostUnserved = 300

// drivenAgain is how soon a deletion is heeded once the kind is served again.
const drivenAgain = 30 * time.Second

// serve exchanges a CRD for one that serves all its versions, or none.
func (w *world) serve(ctx context.Context, crd string, served bool) error {
	c := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Client.Get(ctx, types.NamespacedName{Name: crd}, c); err != nil {
		return err
	}
	base := c.DeepCopy()
	for i := range c.Spec.Versions {
		c.Spec.Versions[i].Served = served
	}
	return w.Client.Patch(ctx, c, client.MergeFrom(base))
}

// A CRD serves no version for a while, as when somebody applies that of another release and puts it back. The manager asks
// little meanwhile, holds what it holds, and does what is asked for soon afterwards.
func TestKindNotServed(t *testing.T) {
	dir, m := machine(t)
	for _, crd := range []string{migrationv1.CRDName, v1alpha1.MachineStateCRD} {
		repeat(t, experiment{name: "under the lock, not served: " + crd, all: 1, some: 1, run: func(t *testing.T, _ *rand.Rand) time.Duration {
			away := 8 * time.Second
			if everything {
				away = time.Minute
			}
			w := pristine(t)
			path := filepath.Join(t.TempDir(), "manager")
			w.kubeconfig(t, path)
			w.managerAt(t, path, "--phases-dir", dir)
			token := tokenID(t, path)
			w.start(t, nil)
			w.until(t, "the lock", atGate(beforeConverged))
			if err := w.serve(t.Context(), crd, false); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := w.serve(context.WithoutCancel(t.Context()), crd, true); err != nil {
					t.Error(err)
				}
			}()
			begun := time.Now()
			pause(away)
			ended := time.Now()
			if err := w.serve(t.Context(), crd, true); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range w.audited(t) {
				if r.by(token) && r.Received.After(begun) && r.Received.Before(ended) {
					n++
				}
			}
			t.Logf("%d requests of the manager in %s", n, away)
			if n > mostUnserved {
				t.Errorf("%d requests while %s was not served for %s, at most %d", n, crd, away, mostUnserved)
			}
			harness.Eventually(t, "the kind to be served", func() error {
				dm, err := w.Migration(t.Context(), setup.MigrationName)
				if err == nil && dm.Status.Machine.Phase == "" {
					err = fmt.Errorf("it has no state")
				}
				return err
			})
			p := w.watch(t, m)
			w.remove(t)
			w.until(t, "what was held to be released", isGone)
			recovered := time.Since(ended)
			t.Logf("released %s after it was served again", recovered)
			p.check(t, invariants.GivenBack, recovered, drivenAgain)
			return recovered
		}})
	}
}
