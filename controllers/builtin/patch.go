package builtin

import (
	"context"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

var patchSpec = fsm.ActionSpec{
	Doc:   "Sets fields of an object that is there (merge patch): null removes a field, a list is replaced whole. To undo it in an effect, release with a second Patch.",
	Check: fieldsOfPatch,
	Params: withTarget(map[string]fsm.Param{
		"patch": {Type: fsm.TypeObject, Required: true, Check: hasNoStatus, Doc: "the fields to set; not status"},
		"only": {Type: fsm.TypeObject, Doc: "fields that must be like this already, or nothing is done: an undo names here what its " +
			"counterpart set, for example an annotation with the UID"},
		"missing": {Type: fsm.TypeString, Check: oneOf("fail", "ignore"), Doc: "what to do when there is no such object: fail (the default), or ignore"},
	}),
	Writes: &fsm.Target{Param: "patch"},
}

var patchVerbs = []string{"get", "patch"}

func patchObject(ctx context.Context, c *call) (outputs, error) {
	obj, err := c.target()
	if err != nil {
		return nil, err
	}
	body, err := c.manifest("patch")
	if err != nil {
		return nil, err
	}
	found, err := c.find(ctx, obj, patchVerbs...)
	switch {
	case err != nil:
		return nil, err
	case !found && c.with.String("missing", "fail") == "ignore":
		return nil, nil
	case !found:
		// Read again for the server's own words: the runner knows their class.
		return nil, c.explain(c.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj), "patch", obj, patchVerbs...)
	}
	return nil, c.patch(ctx, obj, body)
}

// patch sends nothing when the object says so already. It carries the object's
// resourceVersion: what was compared is what is changed.
func (c *call) patch(ctx context.Context, obj, body *unstructured.Unstructured) error {
	if only := c.with.Object("only"); only != nil {
		if holds, err := says(obj, only); err != nil || !holds {
			return err
		}
	}
	if done, err := says(obj, body.Object); err != nil || done {
		return err
	}
	body.SetResourceVersion(obj.GetResourceVersion())
	data, err := json.Marshal(body.Object)
	if err != nil {
		return fsm.Terminal("InvalidPatch", "patch is not JSON: %w: write an object", err)
	}
	err = c.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data), c.writer())
	return c.explain(err, "patch", obj, patchVerbs...)
}

// says tells whether a merge patch with the fields would leave obj as it is.
func says(obj *unstructured.Unstructured, fields map[string]any) (bool, error) {
	before, err := json.Marshal(obj.Object)
	if err != nil {
		return false, err
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return false, err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return false, fsm.Terminal("InvalidPatch", "patch of %s: %w: correct the patch", title(obj), err)
	}
	return jsonpatch.Equal(before, after), nil
}
