package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// AnnotationClaim is where a claim is written unless the machine says otherwise.
const AnnotationClaim = "phasegate.dev/claimed-by"

var claimSpec = fsm.ActionSpec{
	Doc: "Claims another object: an annotation says that it is in use for the object that the machine drives. Of two objects that claim it at the same time, one gets it. " +
		"The other waits, and its message names the holder. The claim of a holder that is gone is taken over. Make it the acquire of an effect, which Unclaim releases.",
	Inverse: &fsm.Inverse{Action: "Unclaim", With: map[string]string{"apiVersion": "apiVersion", "kind": "kind", "name": "name", "namespace": "namespace", "annotation": "annotation"}},
	Params:  withTarget(map[string]fsm.Param{"annotation": claimAnnotation}),
}

var unclaimSpec = fsm.ActionSpec{
	Doc:    "Removes the claim that Claim made for this object. The claim of another object stays, and so does everything where the claimed object is gone.",
	Params: withTarget(map[string]fsm.Param{"annotation": claimAnnotation}),
}

var claimAnnotation = fsm.Param{Type: fsm.TypeString, Check: isAnnotation,
	Doc: "the key of the annotation; default " + AnnotationClaim + ". Machines that must not use the object at the same time give the same one"}

var claimVerbs = []string{"get", "patch"}

func claim(ctx context.Context, c *call) (outputs, error) {
	return nil, c.changeClaim(ctx, func(obj *unstructured.Unstructured, key string) (string, error) {
		switch holder := obj.GetAnnotations()[key]; {
		case obj.GetUID() == "":
			return "", fsm.Wait("%s is not there", title(obj))
		case holder == "" && obj.GetDeletionTimestamp() != nil:
			return "", fsm.Wait("%s is being deleted", title(obj))
		case holder == "" || c.holds(holder):
		default:
			if err := c.holderIsGone(ctx, obj, key, holder); err != nil {
				return "", err
			}
			c.warn("ClaimTakenOver", "%s was claimed by %s, which is gone", title(obj), claimant(holder))
		}
		mine, err := json.Marshal(c.about)
		return string(mine), err
	})
}

func unclaim(ctx context.Context, c *call) (outputs, error) {
	err := c.changeClaim(ctx, func(obj *unstructured.Unstructured, key string) (string, error) {
		if now := obj.GetAnnotations()[key]; !c.holds(now) {
			return now, nil
		}
		return "", nil
	})
	return nil, c.unlessKindIsGone(ctx, named(c.with).GroupVersionKind(), err)
}

// changeClaim writes what decide answers for the object as it is; empty removes the annotation. The object
// has no UID where there is none. The write bears the resourceVersion that was decided about.
func (c *call) changeClaim(ctx context.Context, decide func(obj *unstructured.Unstructured, key string) (string, error)) error {
	key := c.with.String("annotation", AnnotationClaim)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		obj, err := c.target()
		if err != nil {
			return err
		}
		if _, err := c.find(ctx, obj, claimVerbs...); err != nil {
			return err
		}
		text, err := decide(obj, key)
		if err != nil || text == obj.GetAnnotations()[key] {
			return err
		}
		var value any
		if text != "" {
			value = text
		}
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": obj.GetResourceVersion(), "annotations": map[string]any{key: value}}})
		if err != nil {
			return err
		}
		err = c.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data), c.writer())
		return c.explain(err, "claim", obj, claimVerbs...)
	})
}

// holds tells whether a claim is that of the object that the machine drives.
func (c *call) holds(text string) bool {
	holder, known := readClaim(text)
	return known && holder.Object.UID == c.owner.GetUID()
}

// readClaim is not known for a text that a person has written: nobody but that person knows when it ends.
func readClaim(text string) (holder v1alpha1.MachineStateSpec, known bool) {
	err := json.Unmarshal([]byte(text), &holder)
	return holder, err == nil && holder.Machine != "" && holder.Object.UID != ""
}

// claimant names the holder of a claim.
func claimant(text string) string {
	holder, known := readClaim(text)
	if !known {
		return fmt.Sprintf("%q", runner.Cut(text, maxText/4))
	}
	return strings.TrimSpace(holder.Object.Kind + " " + strings.TrimPrefix(holder.Object.Namespace+"/"+holder.Object.Name, "/"))
}

// holderIsGone is nil when nobody will ever release the claim: neither the holder nor its state is there. A state
// that holds something outlives its object, and the claim is released from it. Else the answer is a wait.
func (c *call) holderIsGone(ctx context.Context, obj *unstructured.Unstructured, key, text string) error {
	held := fmt.Sprintf("%s is claimed by %s", title(obj), claimant(text))
	holder, known := readClaim(text)
	if !known {
		return fsm.Wait("%s: remove its annotation %s when that is over", held, key)
	}
	state := object(v1alpha1.APIVersion, "MachineState", "", v1alpha1.MachineStateName(holder.Machine, holder.Object.UID))
	if found, err := c.find(ctx, state, "get"); err != nil || found {
		return waitUnless(err, held)
	}
	live := object(holder.Object.APIVersion, holder.Object.Kind, holder.Object.Namespace, holder.Object.Name)
	found, err := c.find(ctx, live, "get")
	switch {
	case apierrors.NotAllowed(err):
		return fsm.Wait("%s; whether that is gone is not known: %v", held, err)
	case err != nil, found && live.GetUID() == holder.Object.UID:
		return waitUnless(err, held)
	}
	return nil
}

func waitUnless(err error, message string) error {
	if err != nil {
		return err
	}
	return fsm.Wait("%s", message)
}

func isAnnotation(v any) error {
	text, _ := v.(string)
	if problems := validation.IsQualifiedName(text); len(problems) > 0 {
		return badParameter("annotation %q: %s: write PREFIX/NAME, for example %s", text, problems[0], AnnotationClaim)
	}
	return nil
}
