package statusview_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/test/support/renamed"
)

// renamedMachine is the shipped machine with other names of phases, steps, effects and reasons.
func renamedMachine(t *testing.T) *fsm.Machine {
	t.Helper()
	data, err := os.ReadFile("../../../../phases/datastore-migration.yaml")
	if err == nil {
		data, err = renamed.File(data)
	}
	file := filepath.Join(t.TempDir(), "renamed.yaml")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fsmtest.Machine(t, file, datastoremigration.Bindings())
}

// renamedObject is an object as the renamed machine has stored it.
func renamedObject(t *testing.T, data []byte) []byte {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	raw, found, _ := unstructured.NestedMap(u.Object, "status", "machine")
	if !found {
		return data
	}
	var st v1alpha1.MachineStatus
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &st); err != nil {
		t.Fatal(err)
	}
	renamed.Status(&st)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&st)
	if err == nil {
		err = unstructured.SetNestedMap(u.Object, raw, "status", "machine")
	}
	if err == nil {
		data, err = yaml.Marshal(u.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What people see, and what they are advised to do, is the same by whatever names.
func TestTextsByOtherNames(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %v: %v", files, err)
	}
	original, other := shipped(t), renamedMachine(t)
	seen := func(m *fsm.Machine, data []byte) string {
		o := of(t, m, read(t, data), statusview.Caller{})
		asJSON, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		texts := o.String(statusview.View{Tree: true, Wide: true}) + o.Line()
		same := strings.NewReplacer("─", "", m.Revision(), "sha256:of-the-file") // lines are as long as the names
		return same.Replace(renamed.Back(string(asJSON))) + strings.Join(strings.Fields(same.Replace(renamed.Back(texts))), "\n")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(seen(original, data), seen(other, renamedObject(t, data))); diff != "" {
				t.Errorf("(-shipped +renamed):\n%s", diff)
			}
		})
	}
}
