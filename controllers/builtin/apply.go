package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	applying "github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/fsm"
)

var applySpec = fsm.ActionSpec{
	Doc: "Creates an object, or brings its fields to what the manifest says (server-side apply). What the manifest had when the same step applied it before, and does not have any more, is removed; what other steps and other objects applied stays. " +
		"It is deleted with the object that the machine drives; what is in another namespace, or cluster-scoped and made for a namespaced object, is not: release it with Delete. " +
		"In stringData of a Secret, {secretOutput: NAME} and {secret: {name: NAME, key: KEY}} stand for values that are read at the call.",
	Check:   fieldsOfManifest,
	Inverse: &fsm.Inverse{Action: "Delete", With: map[string]string{"apiVersion": "manifest.apiVersion", "kind": "manifest.kind", "name": "manifest.metadata.name", "namespace": "manifest.metadata.namespace"}},
	Params: map[string]fsm.Param{
		"manifest": {Type: fsm.TypeObject, Required: true, Check: isManifest, Secrets: fsm.SecretsInSecret, Doc: "the object, with a name; fields that are left out are not touched"},
		"force":    {Type: fsm.TypeBool, Doc: "take fields over that others manage, other objects of the kind among them, instead of failing"},
		"notOurs": {Type: fsm.TypeString, Check: oneOf("refuse", "allow"), Doc: "what to do with an object of that name that this object did not make: " +
			"refuse (the default), or allow: apply the fields, and leave it to its owner otherwise. While it is being deleted, the step waits in both cases"},
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
	live := object(obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName())
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
	if err := c.fillSecret(ctx, obj); err != nil {
		return nil, err
	}
	// A write to the very object that was looked at, or a create that fails where somebody was faster.
	if obj.SetUID(live.GetUID()); !found {
		obj.SetResourceVersion(applying.NoVersion)
	}
	err = c.send(ctx, obj, c.with.Bool("force", false))
	if c.onlyOurs(err) {
		err = c.send(ctx, obj, true)
	}
	return nil, c.explain(err, "apply", live, applyVerbs...)
}

func (c *call) send(ctx context.Context, obj *unstructured.Unstructured, force bool) error {
	how := []client.ApplyOption{client.FieldOwner(c.stepManager())}
	if force {
		how = append(how, client.ForceOwnership)
	}
	return c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), how...)
}

// onlyOurs tells whether an apply was refused for nothing but fields that other steps for this object applied: the
// last step wins.
func (c *call) onlyOurs(err error) bool {
	var status apierrs.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeFieldManagerConflict && strings.HasPrefix(cause.Message, `conflict with "`+c.managers())
	})
	return len(causes) == 0 && len(status.Status().Details.Causes) > 0
}

// mayApply is an error where the object must be left alone, for now or for good.
func (c *call) mayApply(live *unstructured.Unstructured, found, ours bool) error {
	switch {
	case !found:
		return nil
	case live.GetUID() == c.owner.GetUID():
		return fsm.Terminal("OwnObject", "%s is the object that the machine drives: it cannot own itself, use Patch", title(live))
	case live.GetDeletionTimestamp() != nil:
		return fsm.Wait("%s is being deleted, and made again afterwards", title(live))
	case !ours && c.with.String("notOurs", "refuse") == "refuse":
		return fsm.Terminal("NotOurs", "%s is there already, and %s did not make it: choose another name, delete it, or set notOurs: allow",
			title(live), c.owner.GetName())
	}
	return nil
}

// managers is how the field managers begin of all steps for this object.
func (c *call) managers() string {
	return string(c.writer()) + "/" + string(c.owner.GetUID()) + "/"
}

// stepManager is the field manager of what this step applies, in every revision of the machine: what one revision
// applied is what the next one may take away, and no other step or object is touched by it.
func (c *call) stepManager() string {
	name := c.managers() + c.stepID
	if len(name) > maxManager {
		sum := sha256.Sum256([]byte(c.stepID))
		name = c.managers() + hex.EncodeToString(sum[:8])
	}
	return name
}

// writer is the field manager of writes that are no applies: it is on record, and has no consequences.
func (c *call) writer() client.FieldOwner {
	return client.FieldOwner("phasegate/" + c.kind.Kind)
}
