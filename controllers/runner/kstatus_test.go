package runner

import (
	"os"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/phases"
)

// What Helm, Flux and Argo wait for is what our conditions mean, in every phase of both
// machines: a phase that is not in a table fails.
func TestKstatusAgrees(t *testing.T) {
	t.Run("datastore-migration", func(t *testing.T) {
		assertKstatus(t, "datastore-migration", func() *migrationv1.DatastoreMigration { return &migrationv1.DatastoreMigration{} }, map[string]status.Status{
			"Pending": status.InProgressStatus, "Migrating": status.InProgressStatus, "WaitingForConflictResolution": status.InProgressStatus,
			"Converged": status.InProgressStatus, "Complete": status.CurrentStatus,
			"RollingBack": status.InProgressStatus, "Failed": status.FailedStatus, "Rejected": status.FailedStatus,
			"Aborting": status.TerminatingStatus, "CleaningUp": status.TerminatingStatus, "Deleted": status.TerminatingStatus,
		})
	})
	t.Run("mcpserver", func(t *testing.T) {
		assertKstatus(t, "mcpserver", func() *toolhivev1beta1.MCPServer { return &toolhivev1beta1.MCPServer{} }, map[string]status.Status{
			"Pending": status.InProgressStatus, "Restarting": status.InProgressStatus, "RestartingFailed": status.InProgressStatus,
			"Ready": status.CurrentStatus, "Stopped": status.CurrentStatus,
			"Failed":      status.InProgressStatus, // it is looked at again each minute, and recovers by itself
			"Terminating": status.TerminatingStatus, "Updating": status.InProgressStatus, "Deleted": status.TerminatingStatus,
		})
	})
}

// A look at a steady phase that did not come to its end is about a spec that may never
// have been applied: whoever waits must not take it for a success.
func TestKstatusOfASteadyPhase(t *testing.T) {
	machine := shippedMachine(t, "mcpserver")
	for name, test := range map[string]struct {
		why    string
		status v1alpha1.MachineStatus
		want   status.Status
	}{
		"done":    {"the next look begins with the first step", v1alpha1.MachineStatus{}, status.CurrentStatus},
		"failing": {"an admission webhook answers 403", v1alpha1.MachineStatus{Step: "EnsureWorkload", StepIndex: 2, Attempts: 3}, status.InProgressStatus},
		"waiting": {"the Deployment of before is going", v1alpha1.MachineStatus{Step: "EnsureWorkload", StepIndex: 2}, status.InProgressStatus},
	} {
		test.status.Phase = "Ready"
		if got := kstatusOf(t, machine, &toolhivev1beta1.MCPServer{}, test.status, false); got != test.want {
			t.Errorf("%s: kstatus says %s, want %s: %s", name, got, test.want, test.why)
		}
	}
}

// Which spec a status is about is what tells the engine to begin a look again.
func TestTheViewKnowsWhichSpecTheStatusIsAbout(t *testing.T) {
	machine := shippedMachine(t, "mcpserver")
	obj := &toolhivev1beta1.MCPServer{}
	r := &Reconciler[*toolhivev1beta1.MCPServer]{Clock: clocktesting.NewFakeClock(kstatusNow), Program: &Program[*toolhivev1beta1.MCPServer]{}}
	p := &pass[*toolhivev1beta1.MCPServer]{by: r, machine: machine}
	must(t, p.begin(obj, nil))
	if got := r.observe(t.Context(), p).Observed; got != 0 {
		t.Errorf("observed %d before anything was written, want 0", got)
	}
	obj.Generation = 3
	p.settleLocked(t.Context(), machine.Run(v1alpha1.MachineStatus{Phase: "Ready"}, r.observe(t.Context(), p)))
	written := p.work
	written.Generation = 4 // somebody edits the spec
	must(t, p.begin(written, nil))
	if view := r.observe(t.Context(), p); view.Observed != 3 || view.Generation != 4 {
		t.Errorf("observed %d of %d, want 3 of 4", view.Observed, view.Generation)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kstatusNow is later than any deadline of a phase that begins at the zero of Unix.
var kstatusNow = time.Unix(0, 0).Add(time.Minute)

func assertKstatus[T Object[T]](t *testing.T, name string, empty func() T, want map[string]status.Status) {
	t.Helper()
	machine := shippedMachine(t, name)
	got := map[string]status.Status{}
	for _, phase := range machine.Phases() {
		deleting := want[phase] == status.TerminatingStatus
		got[phase] = kstatusOf(t, machine, empty(), v1alpha1.MachineStatus{Phase: phase}, deleting)
		if in := kstatusOf(t, machine, empty(), v1alpha1.MachineStatus{Phase: phase}, true); in != status.TerminatingStatus {
			t.Errorf("%s, deleted: kstatus says %s", phase, in)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kstatus (-want +got):\n%s", diff)
	}
}

// kstatusOf is what kstatus makes of an object that the runner has written with a status.
func kstatusOf[T Object[T]](t *testing.T, machine *fsm.Machine, obj T, st v1alpha1.MachineStatus, deleting bool) status.Status {
	t.Helper()
	since := metav1.NewMicroTime(time.Unix(0, 0))
	obj.SetName("x")
	obj.SetGeneration(3)
	if deleting {
		obj.SetDeletionTimestamp(&metav1.Time{Time: since.Time})
	}
	st.Name, st.Revision, st.EnteredAt = machine.Name(), machine.Revision(), &since
	*obj.MachineStatus() = st
	by := &Reconciler[T]{Clock: clocktesting.NewFakeClock(kstatusNow), Program: &Program[T]{}}
	p := &pass[T]{by: by, machine: machine, stored: obj, work: deepCopy(obj)}
	p.settleLocked(t.Context(), machine.Run(*obj.MachineStatus(), fsm.Observation{Deleting: deleting, Finalizer: true, Generation: 3, Now: by.Clock.Now,
		Self: func() (map[string]any, error) { return map[string]any{}, nil }}))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.work)
	if err != nil {
		t.Fatal(err)
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

// shippedMachine is bound to the names that its page documents.
func shippedMachine(t *testing.T, name string) *fsm.Machine {
	t.Helper()
	data, err := phases.Files.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	def, diags := fsm.Load(name+".yaml", data)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	file := "../../docs/machines/" + name + ".bindings.yaml"
	names, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bindings, diags := program.LoadBindings(file, names)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	machine, diags := fsm.Bind(def, bindings)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	return machine
}

// An object that no manager has looked at is not done: Flux's dependsOn and Helm's --wait would go on without it. The
// API server answers what the CRD defaults.
func TestKstatusOfAnObjectNobodyHasLookedAt(t *testing.T) {
	for _, file := range []string{"migration.projectcalico.org_datastoremigrations", "toolhive.stacklok.dev_mcpservers"} {
		data, err := os.ReadFile("../../charts/phasegate/files/crds/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			t.Fatal(err)
		}
		for i := range crd.Spec.Versions {
			got := map[string]status.Status{}
			for name, given := range map[string]map[string]any{
				"from a manifest": {}, "from a Go client": {"status": map[string]any{}}, "looked at": {"status": map[string]any{"observedGeneration": int64(2)}},
			} {
				given["metadata"] = map[string]any{"name": "x", "generation": int64(2)}
				got[name] = kstatusOnceDefaulted(t, crd, &crd.Spec.Versions[i], given)
			}
			want := map[string]status.Status{"from a manifest": status.InProgressStatus, "from a Go client": status.InProgressStatus, "looked at": status.CurrentStatus}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s: kstatus (-want +got):\n%s", crd.Spec.Names.Kind, crd.Spec.Versions[i].Name, diff)
			}
		}
	}
}

// kstatusOnceDefaulted is what kstatus makes of an object as an API server with this CRD answers it.
func kstatusOnceDefaulted(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion, given map[string]any) status.Status {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema.DeepCopy(), internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	given["apiVersion"], given["kind"] = crd.Spec.Group+"/"+version.Name, crd.Spec.Names.Kind
	defaulting.Default(given, schema)
	result, err := status.Compute(&unstructured.Unstructured{Object: given})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}
