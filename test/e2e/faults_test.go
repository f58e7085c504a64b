package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// dropCRD deletes a CRD and waits until it is gone.
func (w *world) dropCRD(t *testing.T, name string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Client.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, name+" to be gone", func() error {
		err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd)
		if apierrs.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}

// restoreCRDs brings every Calico CRD back to what it was. It may be called when nothing is missing, also
// after the end of a test.
func (w *world) restoreCRDs(t *testing.T) {
	t.Helper()
	set, err := crds.Load(w.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(context.Background(), w.Config, crds.Set{CRDs: set.CRDs}); err != nil {
		t.Fatal(err)
	}
}

// freezeAPIServer stops the process of this cluster's API server for a while.
func (w *world) freezeAPIServer(t *testing.T, d time.Duration) {
	t.Helper()
	server, err := w.Server(harness.APIServer)
	if err == nil {
		err = server.Freeze(d)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func holds(effect string) func(*migrationv1.DatastoreMigration) bool {
	return func(dm *migrationv1.DatastoreMigration) bool { return dm.Status.Machine.IsHeld(effect) }
}
