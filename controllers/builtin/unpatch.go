package builtin

import (
	"context"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm"
)

// AnnotationRestore and the UID of the object that the machine drives are the annotation in which Patch with restore: true keeps
// what it found.
//
// It is on the object that is patched, in the write that sets the fields, and not in the MachineState: so there is no moment
// between the two, at which a crash would leave a record of what was not done, or nothing of what was. It goes with the
// object, it outlives a lost state, and a fleet of a thousand does not grow the state. Whoever can write it can write the
// fields themselves.
const AnnotationRestore = "restore.phasegate.dev/"

// maxFound is how long a record may be, of the 256 KiB that all annotations of an object have.
const maxFound = 16 << 10

var unpatchSpec = fsm.ActionSpec{
	Doc: "Puts back what a Patch with restore: true of this object found in the fields of patch, and removes what was not there. " +
		"A field that has another value by now than the one set is left as it is, with a warning Event (NotRestored). Nothing is done if nothing was patched, or if the object is gone or another one of its name.",
	Params: withTarget(map[string]fsm.Param{"patch": {Type: fsm.TypeObject, Required: true, Doc: "the patch that is taken back: its fields count, not their values"}}),
	Writes: &fsm.Target{Param: "patch"},
}

func (c *call) foundKey() string { return AnnotationRestore + string(c.owner.GetUID()) }

// readFound is empty where nothing is on record of this object.
func (c *call) readFound(obj *unstructured.Unstructured) (found, error) {
	none := found{UID: obj.GetUID()}
	text := obj.GetAnnotations()[c.foundKey()]
	if text == "" {
		return none, nil
	}
	f := found{}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return none, fsm.Terminal("UnreadableRecord", "%s: annotation %s says what a patch has replaced and cannot be read (%w): correct it, or set the fields by hand and remove it", title(obj), c.foundKey(), err)
	}
	if f.UID != obj.GetUID() {
		return none, nil
	}
	return f, nil
}

// patchAndRecord is patch of an effect with restore: true.
func (c *call) patchAndRecord(ctx context.Context, obj, body *unstructured.Unstructured) error {
	before, err := c.readFound(obj)
	if err != nil {
		return err
	}
	after, err := before.patched(obj.Object, body.Object)
	if err != nil {
		return fmt.Errorf("patch %s: %w", title(obj), err)
	}
	text, err := after.text()
	if err != nil {
		return err
	}
	if len(text) > maxFound {
		return fsm.Terminal("TooMuchToRestore", "%s has %d bytes in the fields of the patch, more than the %d that are kept to put them back: patch smaller fields, or name a release that says the values", title(obj), len(text), maxFound)
	}
	if text != "" {
		if err := unstructured.SetNestedField(body.Object, text, "metadata", "annotations", c.foundKey()); err != nil {
			return fsm.Terminal("InvalidPatch", "patch.metadata: %w: write an object", err)
		}
	}
	if done, err := says(obj, body.Object); err != nil || done {
		return err
	}
	if err := c.sendPatch(ctx, obj, body, types.MergePatchType); err != nil {
		return err
	}
	// The API server may have stored a value in another form, or with defaults. Until that is on record, or if a crash
	// comes before, the release takes it for a change of somebody else and leaves it.
	stored := after.stored(obj.Object)
	if equality.Semantic.DeepEqual(stored, after) {
		return nil
	}
	if text, err = stored.text(); err != nil {
		return err
	}
	record := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{c.foundKey(): text}}}}
	return c.sendPatch(ctx, obj, record, types.MergePatchType)
}

func unpatch(ctx context.Context, c *call) (outputs, error) {
	obj, err := c.target()
	if err != nil {
		return nil, c.unlessKindIsGone(ctx, obj.GroupVersionKind(), err)
	}
	if there, err := c.find(ctx, obj, patchVerbs...); err != nil || !there {
		return nil, err
	}
	record, err := c.readFound(obj)
	if err != nil || len(record.Fields) == 0 {
		return nil, err
	}
	after := runtime.DeepCopyJSON(obj.Object)
	rest, changed := record.putBack(after, c.with.Object("patch"))
	text, err := rest.text()
	if err != nil {
		return nil, err
	}
	remove(after, []string{"metadata", "annotations", c.foundKey()}, 0)
	if text != "" {
		if err := unstructured.SetNestedField(after, text, "metadata", "annotations", c.foundKey()); err != nil {
			return nil, err // not reached: the record was read there
		}
	}
	if len(changed) > 0 { // said before the write: a crash says it twice rather than never
		c.warn("NotRestored", "%s: %s changed since it was set, and is left as it is", title(obj), some(changed))
	}
	return nil, c.become(ctx, obj, after)
}

// become writes what differs, and nothing if nothing does.
func (c *call) become(ctx context.Context, obj *unstructured.Unstructured, after map[string]any) error {
	was, err := json.Marshal(obj.Object)
	if err != nil {
		return err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return err
	}
	data, err := jsonpatch.CreateMergePatch(was, is)
	if err != nil {
		return err
	}
	body := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &body.Object); err != nil || len(body.Object) == 0 {
		return err
	}
	return c.sendPatch(ctx, obj, body, types.MergePatchType)
}
