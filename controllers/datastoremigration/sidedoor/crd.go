package sidedoor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// maxSize is how many bytes a CRD with its side door may have. etcd takes a request of 1.5 MiB.
const maxSize = 1 << 20

// races is how often one CRD may change under our hands.
const races = 5

// manager is the field manager that writes side doors, and nothing else.
const manager = "phasegate-sidedoor"

// Op is an operation of a JSON patch. A merge patch would replace the whole list of
// versions, and with it what others have written there.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// Change patches a CRD until decide finds nothing to do any more, in what the server has
// answered last. The error wraps the API server's.
func Change(ctx context.Context, c client.Client, name string, decide func(*apiextensionsv1.CustomResourceDefinition) []Op) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Get(ctx, types.NamespacedName{Name: name}, crd)
	for range races {
		if err != nil {
			break
		}
		ops := decide(crd)
		if len(ops) == 0 {
			return nil
		}
		var body []byte
		if body, err = json.Marshal(ops); err != nil {
			break
		}
		crd = &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = name
		err = c.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(manager))
		if apierrors.Classify(err) == apierrors.Conflict {
			err = c.Get(ctx, types.NamespacedName{Name: name}, crd)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot be changed: %w", err)
	}
	if len(decide(crd)) > 0 {
		return fmt.Errorf("cannot be changed: others changed it %d times meanwhile", races)
	}
	return nil
}

var markPath = "/metadata/annotations/" + strings.ReplaceAll(migrationv1.AnnotationSideDoor, "/", "~1")

// Open is what opens the side door in a CRD for a migration; nothing where it is open.
// The server copies v3's version itself, so that every byte of the schema is v3's. A door
// that another migration has left is taken over. refusal is why there can be none.
func Open(crd *apiextensionsv1.CustomResourceDefinition, by types.UID) (ops []Op, refusal string) {
	if refusal := Refusal(crd); refusal != "" {
		return nil, refusal
	}
	v3, door := versionIndex(crd, resources.V3Version), versionIndex(crd, migrationv1.SideDoorVersion)
	if crd.Annotations == nil {
		ops = append(ops, Op{Op: "add", Path: "/metadata/annotations", Value: map[string]string{}})
	}
	if crd.Annotations[migrationv1.AnnotationSideDoor] != string(by) {
		ops = append(ops, Op{Op: "add", Path: markPath, Value: by})
	}
	if door >= 0 && isDoor(crd, door, v3) {
		return locked(crd, ops), ""
	}
	at := len(crd.Spec.Versions)
	if door >= 0 { // of a schema that v3 had before
		ops = append(ops, Op{Op: "remove", Path: versionPath(door)})
		at--
		if v3 > door {
			v3--
		}
	}
	ops = append(ops,
		Op{Op: "copy", From: versionPath(v3), Path: "/spec/versions/-"},
		Op{Op: "add", Path: versionPath(at) + "/name", Value: migrationv1.SideDoorVersion},
		Op{Op: "add", Path: versionPath(at) + "/served", Value: true},
		Op{Op: "add", Path: versionPath(at) + "/storage", Value: false})
	return locked(crd, ops), ""
}

// Refusal is why a CRD can have no side door; empty where it can.
func Refusal(crd *apiextensionsv1.CustomResourceDefinition) string {
	v3, door := versionIndex(crd, resources.V3Version), versionIndex(crd, migrationv1.SideDoorVersion)
	conversion := crd.Spec.Conversion
	switch {
	case !crd.DeletionTimestamp.IsZero():
		return "is being deleted"
	case v3 < 0:
		return "has no version " + resources.V3Version
	case conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter:
		return "converts between versions by a webhook, which does not know " + migrationv1.SideDoorVersion
	case apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NonStructuralSchema):
		return "has a schema that is not structural"
	case door >= 0 && crd.Annotations[migrationv1.AnnotationSideDoor] == "" && !isDoor(crd, door, v3):
		return "has a version " + migrationv1.SideDoorVersion + " of another program"
	case door < 0 && sizeOf(crd)+sizeOf(crd.Spec.Versions[v3]) > maxSize:
		return fmt.Sprintf("would have more than %d bytes", maxSize)
	}
	return ""
}

// Close is what takes the side door of a migration out of a CRD; nothing where there is
// none. Where only the mark or only the version is left, that goes. A version without a mark
// is ours if it is what a door is. Last of all goes the record that we have written the
// versions: whoever applies the CRD on the server's side would be told of a conflict with us.
func Close(crd *apiextensionsv1.CustomResourceDefinition, by types.UID) []Op {
	door, mark := versionIndex(crd, migrationv1.SideDoorVersion), crd.Annotations[migrationv1.AnnotationSideDoor]
	var ops []Op
	if mark == string(by) {
		ops = append(ops, Op{Op: "remove", Path: markPath})
	}
	v3 := versionIndex(crd, resources.V3Version)
	if door >= 0 && (mark == string(by) || mark == "" && v3 >= 0 && isDoor(crd, door, v3)) {
		ops = append(ops, Op{Op: "remove", Path: versionPath(door)})
	}
	if len(ops) > 0 {
		return locked(crd, ops)
	}
	for i, entry := range slices.Backward(crd.ManagedFields) {
		if mark == "" && entry.Manager == manager {
			ops = append(ops, Op{Op: "remove", Path: fmt.Sprintf("/metadata/managedFields/%d", i)})
		}
	}
	return locked(crd, ops)
}

// locked makes the server refuse the patch as a conflict where the CRD is another one by
// now: the paths count its versions.
func locked(crd *apiextensionsv1.CustomResourceDefinition, ops []Op) []Op {
	if len(ops) == 0 {
		return nil
	}
	return append([]Op{{Op: "replace", Path: "/metadata/resourceVersion", Value: crd.ResourceVersion}}, ops...)
}

// isDoor tells whether a version is what Open makes of v3's.
func isDoor(crd *apiextensionsv1.CustomResourceDefinition, door, v3 int) bool {
	want := crd.Spec.Versions[v3].DeepCopy()
	want.Name, want.Served, want.Storage = migrationv1.SideDoorVersion, true, false
	return equality.Semantic.DeepEqual(*want, crd.Spec.Versions[door])
}

// Has tells whether a CRD has a side door, whosever it is.
func Has(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return versionIndex(crd, migrationv1.SideDoorVersion) >= 0
}

func versionIndex(crd *apiextensionsv1.CustomResourceDefinition, name string) int {
	return slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
}

func versionPath(index int) string { return fmt.Sprintf("/spec/versions/%d", index) }

func sizeOf(v any) int {
	data, _ := json.Marshal(v) // it came out of JSON
	return len(data)
}
