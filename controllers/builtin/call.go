package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// call is one call of an action, whatever the kind of the object that it is for.
type call struct {
	Options
	// owner is the object that the machine drives, and kind its kind.
	owner  client.Object
	kind   schema.GroupVersionKind
	status *v1alpha1.MachineStatus
	with   fsm.Params
	// about says whose state save writes, and stateUID which that is; stepID and releases are those of the scope.
	about    v1alpha1.MachineStateSpec
	stateUID func() types.UID
	stepID   string
	releases bool
	// save and saved keep a text with the state of the object.
	save   func(ctx context.Context, name, text string) error
	saved  func(name string) string
	now    func() time.Time
	warn   func(reason, format string, args ...any)
	report func(change func(*[]metav1.Condition))
	// secrets are the values that references came to in this call.
	secrets revealed
}

// visitKey names this visit to the phase, and parts of it. It is the same when the action is
// called again, after a crash and after a rename of the phase, and another one on the next visit.
func (c *call) visitKey(parts ...string) string {
	all := append([]string{string(c.owner.GetUID()), c.status.Visit()}, parts...)
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// manifest is a parameter that holds a whole object. Its content is decoded anew,
// so that it may be changed, and numbers are as Kubernetes has them.
func (c *call) manifest(param string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	data, err := json.Marshal(c.with.Object(param))
	if err == nil {
		err = json.Unmarshal(data, &obj.Object)
	}
	if err != nil {
		return nil, fsm.Terminal("InvalidManifest", "%s is no object: %w: write it as docs/extend/builtin-actions.md shows", param, err)
	}
	return obj, nil
}

// place gives an object its namespace: none for a kind that has none, and that of
// the owner where nothing is said.
func (c *call) place(obj *unstructured.Unstructured) error {
	namespaced, err := c.Client.IsObjectNamespaced(obj)
	if err != nil {
		return fmt.Errorf("find the scope of %s: %w", obj.GroupVersionKind(), err)
	}
	switch {
	case !namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == "" && c.owner.GetNamespace() == "":
		return fsm.Terminal("NamespaceMissing", "%s needs a namespace: %s has none that it could be in by default, give metadata.namespace", title(obj), c.kind.Kind)
	case obj.GetNamespace() == "":
		obj.SetNamespace(c.owner.GetNamespace())
	}
	return nil
}

// find reads an object by its kind, namespace and name.
func (c *call) find(ctx context.Context, obj *unstructured.Unstructured, verbs ...string) (found bool, err error) {
	return c.findFor(ctx, obj, toObject(obj, verbs...))
}

// findFor is find for a call that needs several rules.
func (c *call) findFor(ctx context.Context, obj *unstructured.Unstructured, needed []rbac.Access) (found bool, err error) {
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if err == nil || apierrors.ObjectNotFound(err) {
		return err == nil, nil
	}
	return false, c.explainAll(c.unlessKindIsGone(ctx, obj.GroupVersionKind(), err), "read", obj, needed)
}

// explain says what could not be done, and for a lack of rights which rule the
// manager needs. It is nil for a nil error.
func (c *call) explain(err error, doing string, obj *unstructured.Unstructured, verbs ...string) error {
	return c.explainAll(err, doing, obj, toObject(obj, verbs...))
}

// explainAll is explain for a call that needs several rules.
func (c *call) explainAll(err error, doing string, obj *unstructured.Unstructured, needed []rbac.Access) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s %s: %w", doing, title(obj), err)
	// An admission plug-in forbids too, and no rule helps against that.
	if !apierrors.NotAllowed(err) {
		return err
	}
	rules := make([]string, len(needed))
	for i, a := range needed {
		group, resource := rbac.Served(c.Client.RESTMapper())(obj.GetAPIVersion(), obj.GetKind())
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		rules[i] = fmt.Sprintf("{apiGroups: [%q], resources: [%s], verbs: [%s]}", group, resource, strings.Join(a.Verbs, ", "))
	}
	return fmt.Errorf("%w: add to the manager's role: %s", err, strings.Join(rules, " and "))
}

// isOwner tells whether obj is the object that the machine drives, read or not: a deleted one may bear another UID by now, and
// another version of its kind is the same.
func (c *call) isOwner(obj *unstructured.Unstructured) bool {
	return obj.GetUID() != "" && obj.GetUID() == c.owner.GetUID() ||
		obj.GroupVersionKind().GroupKind() == c.kind.GroupKind() && obj.GetNamespace() == c.owner.GetNamespace() && obj.GetName() == c.owner.GetName()
}

// title is how errors and messages name an object.
func title(obj *unstructured.Unstructured) string {
	return strings.TrimSpace(obj.GetKind() + " " + strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/"))
}

// withTarget adds the parameters that name another object.
func withTarget(own map[string]fsm.Param) map[string]fsm.Param {
	all := map[string]fsm.Param{
		"apiVersion": {Type: fsm.TypeString, Required: true, Check: isAPIVersion, Doc: "of the object, for example apps/v1"},
		"kind":       {Type: fsm.TypeString, Required: true, Check: isKind, Doc: "of the object, for example Deployment"},
		"name":       {Type: fsm.TypeString, Required: true, Check: isName, Doc: "of the object"},
		"namespace":  {Type: fsm.TypeString, Doc: "of the object; default: that of the object that the machine drives"},
	}
	maps.Copy(all, own)
	return all
}

// target is the object that the parameters name, not read yet.
func (c *call) target() (*unstructured.Unstructured, error) {
	obj := named(c.with)
	return obj, c.place(obj)
}

func named(with fsm.Params) *unstructured.Unstructured {
	return object(with.String("apiVersion", ""), with.String("kind", ""), with.String("namespace", ""), with.String("name", ""))
}

// object is one that was not read yet.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

// LabelOwner is on every object that an action made; its value is the UID of the
// object that the machine drives.
const LabelOwner = "phasegate.dev/owner-uid"

// canOwn tells whether an owner reference from obj is one that the garbage
// collector honors: it deletes what refers to an owner in another namespace.
func (c *call) canOwn(obj *unstructured.Unstructured) bool {
	return c.owner.GetNamespace() == "" || c.owner.GetNamespace() == obj.GetNamespace()
}

// mark writes on an object who made it. The owner is its controller, so that
// `watch: owned` wakes.
func (c *call) mark(obj *unstructured.Unstructured) {
	obj.SetLabels(labels.Merge(obj.GetLabels(), labels.Set{LabelOwner: string(c.owner.GetUID())}))
	if c.canOwn(obj) {
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: c.kind.GroupVersion().String(), Kind: c.kind.Kind,
			Name: c.owner.GetName(), UID: c.owner.GetUID(), Controller: new(true),
		}))
	}
}

// keep lets an object that outlives the owner belong to the state, which stays until all is released. The garbage
// collector deletes an object only when all its owners are gone.
func (c *call) keep(obj *unstructured.Unstructured) {
	if uid := c.stateUID(); uid != "" {
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: v1alpha1.APIVersion, Kind: "MachineState", Name: v1alpha1.MachineStateName(c.about.Machine, c.about.Object.UID), UID: uid,
		}))
	}
}

// made tells whether this object's machine made obj. Labels are copied with a
// manifest, so they count only where there cannot be an owner reference.
func (c *call) made(obj *unstructured.Unstructured) bool {
	if c.canOwn(obj) {
		return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == c.owner.GetUID() || r.UID == c.stateUID() // the collector removes the reference to an owner that is gone
		})
	}
	return obj.GetLabels()[LabelOwner] == string(c.owner.GetUID())
}
