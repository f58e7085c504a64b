package builtin

import (
	"context"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

var patchSpec = fsm.ActionSpec{
	Doc:   "Sets fields of an object that is there. As a merge patch, null removes a field, and a list is replaced whole; type: strategic merges lists of Kubernetes' own kinds by their keys, so that patch says one container by its name. To undo it in an effect, set restore: true, or release with a second Patch that says the values.",
	Check: fieldsOfPatch,
	Inverse: &fsm.Inverse{Action: "Unpatch", If: "restore",
		With: map[string]string{"apiVersion": "apiVersion", "kind": "kind", "name": "name", "namespace": "namespace", "patch": "patch"}},
	Params: withTarget(map[string]fsm.Param{
		"patch": {Type: fsm.TypeObject, Required: true, Doc: "the fields to set; not status, unless that is the subresource. {} sets none and is sent: the API server writes the object anew where it is stored in another version than it would be now"},
		"only": {Type: fsm.TypeObject, Doc: "fields of the object that must be like this already, or nothing is done: an undo names here what its " +
			"counterpart set, for example an annotation with the UID"},
		"type":    {Type: fsm.TypeString, Check: oneOf(mergePatch, strategicPatch), Doc: "merge (the default) or strategic, as of kubectl patch"},
		"missing": {Type: fsm.TypeString, Check: oneOf("fail", "ignore"), Doc: "what to do when there is no such object: fail (the default), or ignore"},
		"restore": {Type: fsm.TypeBool, Doc: "true, in the acquire of an effect: what is found in the fields of patch is kept in an annotation of the object, and put back when the effect is released. " +
			"Of a merge patch, without a subresource, and not of a Secret; at most 16 KiB. Claim an object that others patch, too"},
		"subresource": {Type: fsm.TypeString, Doc: "status: patch has status and nothing else; that of the object itself is refused, use spec.status for it. " +
			"scale: patch is {spec: {replicas: N}}, for any kind that can be scaled. Written plainly, for the rights follow from it"},
	}),
	Writes: &fsm.Target{Param: "patch"},
}

var patchVerbs = []string{"get", "patch"}

func patchObject(ctx context.Context, c *call) (outputs, error) {
	if _, err := patchFlaw(c.with); err != nil {
		return nil, err
	}
	obj, err := c.target()
	if err != nil {
		return nil, err
	}
	if err := c.maySetStatus(obj); err != nil {
		return nil, err
	}
	body, err := c.manifest("patch")
	if err != nil {
		return nil, err
	}
	found, err := c.findFor(ctx, obj, toPatched(c.with))
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

// maySetStatus refuses the status of the object itself: the runner alone writes that, and as a view.
func (c *call) maySetStatus(obj *unstructured.Unstructured) error {
	if c.with.String("subresource", "") == subStatus && c.isOwner(obj) {
		return fsm.Terminal("OwnObject", "%s is the object that the machine drives, whose status the manager writes: use spec.status of the machine for fields, and SetCondition for conditions", title(obj))
	}
	return nil
}

// patch sends nothing when the object says so already, unless there is nothing to say: only the server knows in which
// version an object is stored. It carries the object's resourceVersion: what was compared is what is changed.
func (c *call) patch(ctx context.Context, obj, body *unstructured.Unstructured) error {
	if applies, err := c.applies(obj); err != nil || !applies {
		return err
	}
	subresource, part := c.with.String("subresource", ""), obj
	if subresource == subScale {
		var err error
		if part, err = c.scaleOf(ctx, obj); err != nil {
			return err
		}
	}
	if c.with.Bool("restore", false) {
		return c.patchAndRecord(ctx, obj, body)
	}
	form := types.MergePatchType
	said := says
	if c.with.String("type", mergePatch) == strategicPatch {
		form, said = types.StrategicMergePatchType, saysStrategically
	}
	if done, err := said(part, body.Object); err != nil || done && len(body.Object) > 0 {
		return err
	}
	if subresource == "" {
		return c.sendPatch(ctx, obj, body, form)
	}
	raw, err := rawPatch(obj, body, form)
	if err != nil {
		return err
	}
	err = c.Client.SubResource(subresource).Patch(ctx, obj, raw, client.WithSubResourceBody(part), c.writer()) //nolint:forbidigo // of another object
	return c.explainPart(ctx, err, "patch the "+subresource+" of", obj, subresource)
}

// sendPatch changes what was read of an object, and nothing newer.
func (c *call) sendPatch(ctx context.Context, obj, body *unstructured.Unstructured, form types.PatchType) error {
	raw, err := rawPatch(obj, body, form)
	if err != nil {
		return err
	}
	return c.explain(c.Client.Patch(ctx, obj, raw, c.writer()), "patch", obj, patchVerbs...)
}

func rawPatch(obj, body *unstructured.Unstructured, form types.PatchType) (client.Patch, error) {
	body.SetResourceVersion(obj.GetResourceVersion())
	data, err := json.Marshal(body.Object)
	if err != nil {
		return nil, fsm.Terminal("InvalidPatch", "patch is not JSON: %w: write an object", err)
	}
	return client.RawPatch(form, data), nil
}

// applies tells whether an object is like `only` says.
func (c *call) applies(obj *unstructured.Unstructured) (bool, error) {
	only := c.with.Object("only")
	if only == nil {
		return true, nil
	}
	return says(obj, only)
}

// scaleOf reads the scale of an object, in the form that is the same for all kinds. Nothing is said there of no replicas.
func (c *call) scaleOf(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	scale := object(scaleAPIVersion, scaleKind, obj.GetNamespace(), obj.GetName())
	if err := c.Client.SubResource(subScale).Get(ctx, obj, scale); err != nil { //nolint:forbidigo // it only reads
		return nil, c.explainPart(ctx, err, "read the scale of", obj, subScale)
	}
	if _, said, _ := unstructured.NestedFieldNoCopy(scale.Object, "spec", "replicas"); !said {
		if err := unstructured.SetNestedField(scale.Object, int64(0), "spec", "replicas"); err != nil {
			return nil, err
		}
	}
	return scale, nil
}

// explainPart is explain for a subresource. That a kind does not have it is answered as if the object were not there.
func (c *call) explainPart(ctx context.Context, err error, doing string, obj *unstructured.Unstructured, subresource string) error {
	if apierrors.Classify(err) == apierrors.NotFound {
		if found, _ := c.find(ctx, obj); found {
			return fsm.Terminal("NoSubresource", "%s is there and has no subresource %s (%w): correct it, or add it to the CRD of the kind", title(obj), subresource, err)
		}
	}
	return c.explainAll(err, doing, obj, patchedAs(obj, subresource))
}

const (
	mergePatch     = "merge"
	strategicPatch = "strategic"
)

// saysStrategically is says for a strategic merge patch, which is known of Kubernetes' own kinds only.
func saysStrategically(obj *unstructured.Unstructured, fields map[string]any) (bool, error) {
	typed, err := clientgoscheme.Scheme.New(obj.GroupVersionKind())
	if err != nil {
		return false, fsm.Terminal("InvalidPatch", "patch of %s: type: strategic is for Kubernetes' own kinds: leave it out, and write lists whole", title(obj))
	}
	after, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(obj.Object), runtime.DeepCopyJSON(fields), typed)
	if err != nil {
		return false, fsm.Terminal("InvalidPatch", "patch of %s: %w: correct the patch", title(obj), err)
	}
	return equality.Semantic.DeepEqual(map[string]any(after), obj.Object), nil
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
