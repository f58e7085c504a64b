package resources

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Converted is a v1 object as it should be in v3.
type Converted struct {
	// Object is ready to be created. It carries the owner references that point outside Calico, and
	// none that points to a Calico object: such an owner has another UID in v3, and the garbage
	// collector deletes an object whose owner has another UID than the reference says.
	Object *unstructured.Unstructured
	// Owners are the withheld references to Calico objects, as the v1 side has them: with the raw or
	// the bit-reversed UID of the v1 owner.
	Owners []metav1.OwnerReference
	// V1UID is the UID of the v1 object; the reversed form is its UID in the aggregated v3 view.
	V1UID types.UID
	// V1Version is the resourceVersion of the v1 object, V1Content its CopiedVersion.
	V1Version, V1Content string
	// Status is what the v1 object has, for a kind whose status takes a write of its own; else nil.
	Status map[string]any
	// Filled is what Object says, and v1 does not; sorted by field within each rule.
	Filled []Filled
	// Terminating is true for an object that is being deleted, on either level. It is not to be copied.
	Terminating bool
}

// Convert turns a v1 object into its v3 form. It changes neither the argument nor anything else, but
// the result shares sub-objects with v1 where they are equal: change one of them only after a deep copy.
// schema may be nil: rules that need one are skipped then. The error is always a *Problem.
func Convert(kind *Kind, v1 *unstructured.Unstructured, schema *Schema) (*Converted, error) {
	c := &conversion{kind: kind, v1: v1, schema: schema}
	if err := c.readMetadata(); err != nil {
		return nil, err
	}
	c.build()
	for _, convert := range kind.converters {
		if err := convert(c); err != nil {
			return nil, err
		}
	}
	if err := c.admission(); err != nil {
		return nil, err
	}
	return c.result(), nil
}

// conversion is the notebook of one Convert.
type conversion struct {
	kind   *Kind
	v1     *unstructured.Unstructured
	schema *Schema
	// hidden is nil for an object without the metadata annotation; filled by readMetadata.
	hidden *hiddenMetadata
	// out and meta (out's metadata) are filled by build, which the converters run after.
	out    map[string]any
	meta   map[string]any
	filled []Filled
}

func (c *conversion) problem(reason Reason, remedy, format string, args ...any) *Problem {
	return &Problem{
		Kind: c.kind.Name(), Namespace: c.v1.GetNamespace(), Name: c.v1.GetName(),
		Reason: reason, Message: fmt.Sprintf(format, args...), Remedy: remedy,
	}
}

func (c *conversion) readMetadata() error {
	err := readStringMaps(c.v1)
	if err == nil {
		c.v1, err = reattached(c.v1)
	}
	if err == nil {
		c.hidden, err = readHidden(c.v1)
	}
	if err != nil {
		return c.problem(ReasonUnreadableMetadata, "repair or remove it on the v1 object", "cannot be read: %v", err)
	}
	if _, err := ReverseUID(c.v1.GetUID()); err != nil {
		return c.problem(ReasonBadUID, "recreate the v1 object", "metadata.uid: %v", err)
	}
	return nil
}

// build copies all there is; only metadata and what converters change is new.
func (c *conversion) build() {
	c.out = maps.Clone(c.v1.Object)
	gvk := c.kind.V3GVK()
	c.out["apiVersion"], c.out["kind"] = gvk.GroupVersion().String(), gvk.Kind
	if c.out["spec"] == nil {
		c.out["spec"] = map[string]any{} // v3 requires a spec
	}
	c.meta = v3Metadata(c.v1, c.hidden)
	c.out["metadata"] = c.meta
}

func (c *conversion) result() *Converted {
	res := &Converted{
		Object:      &unstructured.Unstructured{Object: c.out},
		V1UID:       c.v1.GetUID(),
		V1Version:   c.v1.GetResourceVersion(),
		V1Content:   CopiedVersion(c.v1),
		Filled:      c.filled,
		Terminating: c.v1.GetDeletionTimestamp() != nil || c.hidden != nil && !c.hidden.DeletionTimestamp.IsZero(),
	}
	if c.kind.HasStatus(c.schema) {
		res.Status, _ = c.out["status"].(map[string]any)
		delete(c.out, "status") // a create would drop it
	}
	calico, foreign := SplitOwners(ownerReferences(c.v1, c.hidden))
	res.Owners = calico
	if len(foreign) > 0 {
		res.Object.SetOwnerReferences(foreign)
	}
	return res
}

// ownSpec is the spec as a map that a converter may write to, on its top level only.
func (c *conversion) ownSpec() (map[string]any, error) {
	spec, ok := c.out["spec"].(map[string]any)
	if !ok {
		return nil, c.problem(ReasonUnreadableField, "repair the v1 object", "spec is no object but %T", c.out["spec"])
	}
	own := maps.Clone(spec)
	c.out["spec"] = own
	return own, nil
}
