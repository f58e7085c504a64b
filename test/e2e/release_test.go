package e2e

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A whole migration with the CRDs of the oldest release that is supported: there CalicoNodeStatus has a status and no
// subresource for it, on neither side.
func TestCalico332(t *testing.T) {
	dir := crds.Release("3.32")
	if dir == "" {
		t.Skipf("the CRDs of Calico 3.32 are not here: put them beside those of %s, in a directory with the suffix -3.32", crds.EnvDir)
	}
	set, err := crds.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := own(t, setup.Options{Objects: fixture.Demo(1, 100), CRDs: set})
	before := w.content(t)
	w.manager(t)
	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.await(t, setup.MigrationName, "Converged")
	assertSameContent(t, before, w.content(t))
	in := map[string]any{}
	for _, group := range []string{"crd.projectcalico.org/v1", "projectcalico.org/v3"} {
		var list struct {
			Items []struct{ Status map[string]any }
		}
		w.do(t, json.Unmarshal([]byte(w.kubectl(t, "get", "--raw", "/apis/"+group+"/caliconodestatuses")), &list))
		in[group] = list.Items
	}
	if diff := cmp.Diff(in["crd.projectcalico.org/v1"], in["projectcalico.org/v3"]); diff != "" {
		t.Errorf("the status of CalicoNodeStatus (-v1 +v3):\n%s", diff)
	}
	if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "datastoremigration/"+setup.MigrationName)
}
