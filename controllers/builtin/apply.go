package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var applySpec = fsm.ActionSpec{
	Doc: "Creates an object, or brings its fields to what the manifest says (server-side apply). It is deleted with the object that the machine drives; " +
		"what is in another namespace, or cluster-scoped and made for a namespaced object, is not: release it with Delete.",
	Check: fieldsOfManifest,
	Params: map[string]fsm.Param{
		"manifest": {Type: fsm.TypeObject, Required: true, Check: isManifest, Doc: "the object, with a name; fields that are left out are not touched"},
		"force":    {Type: fsm.TypeBool, Doc: "take fields over that somebody else manages, instead of failing"},
		"notOurs": {Type: fsm.TypeString, Check: oneOf("refuse", "allow"), Doc: "what to do with an object of that name that this object did not make: " +
			"refuse (the default), or allow: apply the fields, and leave it to its owner otherwise"},
	},
	Writes: &fsm.Target{Manifest: "manifest", Param: "manifest"},
}

var applyVerbs = []string{"get", "create", "patch"}

// maxManager is how long the API server lets the name of a field manager be.
const maxManager = 128

func apply(ctx context.Context, c *call) (outputs, error) {
	obj, err := c.manifest("manifest")
	if err != nil {
		return nil, err
	}
	if err := c.place(obj); err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	live.SetNamespace(obj.GetNamespace())
	live.SetName(obj.GetName())
	found, err := c.find(ctx, live, applyVerbs...)
	if err != nil {
		return nil, err
	}
	ours := !found || c.made(live)
	if err := c.mayApply(live, found, ours); err != nil {
		return nil, err
	}
	if ours {
		c.mark(obj)
	}
	// The UID makes this a write to the very object that was looked at; empty for a
	// new one.
	obj.SetUID(live.GetUID())
	how := []client.ApplyOption{c.fieldManager()}
	if c.with.Bool("force", false) {
		how = append(how, client.ForceOwnership)
	}
	err = c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), how...)
	return nil, c.explain(err, "apply", live, applyVerbs...)
}

// mayApply is an error where the object must be left alone, for now or for good.
func (c *call) mayApply(live *unstructured.Unstructured, found, ours bool) error {
	switch {
	case !found:
		return nil
	case live.GetUID() == c.owner.GetUID():
		return fsm.Terminal("OwnObject", "%s is the object that the machine drives: it cannot own itself, use Patch", title(live))
	case !ours && c.with.String("notOurs", "refuse") == "refuse":
		return fsm.Terminal("NotOurs", "%s is there already, and %s did not make it: choose another name, delete it, or set notOurs: allow",
			title(live), c.owner.GetName())
	case live.GetDeletionTimestamp() != nil:
		return fsm.Wait("%s is being deleted, and made again afterwards", title(live))
	}
	return nil
}

// fieldManager is the same for all objects of a kind, so that what one revision
// of a machine applied is what the next one may take away.
func (c *call) fieldManager() client.FieldOwner {
	return client.FieldOwner(runner.Cut("phasegate/"+c.kind.Kind, maxManager))
}
