package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

var deleteSpec = fsm.ActionSpec{
	Doc:   "Deletes an object, or all of a kind that this object made, and waits until they are gone, and before them what they own: the Pods of a Job, for example. It may be the release of an effect: what is not there or not ours is left alone. A kind whose CRD is gone has no objects; a version that is not served any more, of a kind that is, is an error that names those that are.",
	Check: deleteTarget,
	Params: withTarget(map[string]fsm.Param{
		"name":               {Type: fsm.TypeString, Check: isName, Doc: "of the object; left out: all of the kind in the namespace that this object made"},
		"uid":                {Type: fsm.TypeString, Doc: "of the object: one of another UID, which came in its place, is left alone. Needs a name"},
		"gracePeriodSeconds": {Type: fsm.TypeInt, Check: isGracePeriod, Doc: "instead of that of the object, which Pods have; 0 kills at once"},
		"wait":               {Type: fsm.TypeBool, Doc: "false: do not wait until it is gone; what it owns goes after it"},
		"notOurs": {Type: fsm.TypeString, Check: oneOf("keep", "refuse", "allow"), Doc: "what to do with an object that this object did not make: keep it with a warning (the default), " +
			"refuse: fail, or allow: delete it"},
	}),
	Writes:  &fsm.Target{},
	Outputs: map[string]fsm.Type{"gone": fsm.TypeBool},
	Ends:    deletesJobs,
}

// Without a name, objects are listed.
var (
	deleteVerbs      = []string{"get", "list", "delete"}
	deleteNamedVerbs = []string{"get", "delete"}
)

// shownMost is how many objects a message names.
const shownMost = 3

// deleteTarget: many objects have no UID in common.
func deleteTarget(with fsm.Params) []fsm.Misfit {
	all := kindOfTarget(with)
	if with["uid"] != nil && with["name"] == nil {
		all = append(all, fsm.Misfit{Path: "uid", Message: "a uid is of one object, and no name is given"})
	}
	return all
}

// deletesJobs: all Jobs that this object made are gone after it, with their Pods.
func deletesJobs(with, run fsm.Params) bool {
	wait, given := with["wait"]
	return with.String("apiVersion", "") == batchv1.SchemeGroupVersion.String() && with.String("kind", "") == "Job" && with["name"] == nil &&
		(!given || wait == true) && with.String("namespace", "") == namespaceOfRun(run)
}

func deleteObjects(ctx context.Context, c *call) (outputs, error) {
	notOurs, wait := c.with.String("notOurs", "keep"), c.with.Bool("wait", true)
	objs, err := c.toDelete(ctx)
	if err != nil {
		return nil, err
	}
	gone, left := true, []string{}
	for i := range objs {
		switch obj := &objs[i]; {
		case c.made(obj) || notOurs == "allow":
			if left, err = c.remove(ctx, obj, wait, left); err != nil {
				return nil, err
			}
		case notOurs == "refuse":
			return nil, fsm.Terminal("NotOurs", "%s was not made by %s: delete it by hand, or set notOurs: allow", title(obj), c.owner.GetName())
		default:
			c.warn("NotOurs", "%s was not made by this object and is left alone", title(obj))
			gone = false
		}
	}
	if len(left) > 0 && wait {
		return nil, fsm.Wait("Waiting until gone: %s", some(left))
	}
	return outputs{"gone": gone && len(left) == 0}, nil
}

// toDelete lists what is there. A kind that is gone has no objects: its CRD may have gone first.
func (c *call) toDelete(ctx context.Context) ([]unstructured.Unstructured, error) {
	obj, err := c.target()
	if err != nil {
		return nil, c.unlessKindIsGone(ctx, obj.GroupVersionKind(), err)
	}
	if obj.GetName() != "" {
		found, err := c.find(ctx, obj, deleteVerbs...)
		uid := c.with.String("uid", "")
		if err != nil || !found || uid != "" && uid != string(obj.GetUID()) {
			return nil, err
		}
		return []unstructured.Unstructured{*obj}, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(obj.GroupVersionKind())
	err = c.Client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingLabels{LabelOwner: string(c.owner.GetUID())})
	if err != nil {
		return nil, c.explain(c.unlessKindIsGone(ctx, obj.GroupVersionKind(), err), "list", obj, deleteVerbs...)
	}
	ours := []unstructured.Unstructured{}
	for _, item := range list.Items {
		if c.made(&item) { // a copied label does not count
			ours = append(ours, item)
		}
	}
	return ours, nil
}

// remove adds to left what is still there, and why; nothing when nothing is. To wait is to let the garbage collector
// delete first what the object owns: it keeps the object meanwhile. That is asked for also where a deletion that
// does not wait is under way.
func (c *call) remove(ctx context.Context, obj *unstructured.Unstructured, wait bool, left []string) ([]string, error) {
	if obj.GetUID() == c.owner.GetUID() {
		return left, fsm.Terminal("OwnObject", "%s is the object that the machine drives: it would wait for itself, name another one", title(obj))
	}
	how, asked := metav1.DeletePropagationBackground, obj.GetDeletionTimestamp() != nil
	if wait {
		how = metav1.DeletePropagationForeground
		asked = asked && slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
	}
	if !asked {
		uid := obj.GetUID()
		options := []client.DeleteOption{client.Preconditions{UID: &uid}, client.PropagationPolicy(how)}
		if c.with["gracePeriodSeconds"] != nil {
			options = append(options, client.GracePeriodSeconds(int64(c.with.Int("gracePeriodSeconds", 0))))
		}
		err := c.Client.Delete(ctx, obj, options...)
		if client.IgnoreNotFound(err) != nil {
			return left, c.explain(err, "delete", obj, deleteVerbs...)
		}
		if found, err := c.find(ctx, obj, deleteVerbs...); err != nil || !found || obj.GetUID() != uid {
			return left, err
		}
	}
	return append(left, title(obj)+because(obj.GetFinalizers())), nil
}

// because says what keeps an object that is being deleted.
func because(finalizers []string) string {
	var reasons []string
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if len(others) < len(finalizers) {
		reasons = append(reasons, "what it owns goes first")
	}
	if len(others) > 0 {
		reasons = append(reasons, "finalizers "+strings.Join(others, ", "))
	}
	if len(reasons) == 0 {
		return ""
	}
	return " (" + strings.Join(reasons, "; ") + ")"
}

// some names a few of many.
func some(names []string) string {
	if len(names) > shownMost {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownMost], ", "), len(names)-shownMost)
	}
	return strings.Join(names, ", ")
}
