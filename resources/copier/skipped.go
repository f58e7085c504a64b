package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Skipped is a v1 object that no copy is made of.
type Skipped struct {
	Kind      string
	Namespace string
	Name      string // in v3
	Why       Why
}

// Why says why no copy of an object is made.
type Why string

// The reasons.
const (
	SkippedEqual       Why = "AlreadyInV3"  // v3 has it with the same content, and it is not ours
	SkippedTerminating Why = "BeingDeleted" // in v1, and no other object needs it
)

func compareSkipped(a, b Skipped) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name, string(a.Why)}, []string{b.Kind, b.Namespace, b.Name, string(b.Why)})
}

// leaving are v1 objects that are being deleted, by kind.
type leaving map[*resources.Kind][]*unstructured.Unstructured

// add keeps the object.
func (l leaving) add(kind *resources.Kind, v1 *unstructured.Unstructured) {
	l[kind] = append(l[kind], v1)
}

// leftBehind separates the objects that are being deleted: v3 may lack those that nothing needs. The others live on
// as long as something needs them, so that v3 would lack a pool that has addresses, or a tier that has policies: they
// count as rejected.
func (c *Copier) leftBehind(ctx context.Context, all leaving, counts *tracker) (skipped []Skipped, inUse []resources.Problem, err error) {
	for kind, objects := range all {
		for _, v1 := range objects {
			users, err := c.users(ctx, kind, v1)
			if err != nil {
				return nil, nil, err
			}
			if len(users) > 0 {
				inUse = append(inUse, deletedInUse(kind, v1, users))
				counts.moved(kind, terminating, rejected)
				continue
			}
			skip := Skipped{Kind: kind.Name(), Namespace: v1.GetNamespace(), Name: v1.GetName(), Why: SkippedTerminating}
			if conv, err := resources.Convert(kind, v1, nil); err == nil {
				skip.Name = conv.Object.GetName()
			}
			skipped = append(skipped, skip)
		}
	}
	return skipped, inUse, nil
}

// users are the v1 objects that keep another one from going.
func (c *Copier) users(ctx context.Context, of *resources.Kind, v1 *unstructured.Unstructured) (users []string, err error) {
	for _, kind := range c.reg.Kinds() {
		if kind.Needs() != of.Name() {
			continue
		}
		err := c.EachV1(ctx, kind, func(obj *unstructured.Unstructured) error {
			if kind.NeedsObject(obj, v1) {
				users = append(users, kind.Name()+" "+strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/"))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return users, nil
}

// usersNamed is how many users of an object a message has.
const usersNamed = 3

func deletedInUse(kind *resources.Kind, v1 *unstructured.Unstructured, users []string) resources.Problem {
	need, list := "objects still need", strings.Join(users[:min(len(users), usersNamed)], ", ")
	if len(users) == 1 {
		need = "object still needs"
	}
	if more := len(users) - usersNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return resources.Problem{
		Kind: kind.Name(), Namespace: v1.GetNamespace(), Name: v1.GetName(), Reason: resources.ReasonDeletedInUse,
		Message: fmt.Sprintf("is being deleted, and %d %s it: %s", len(users), need, list),
		Remedy:  "delete or move what needs it, so that the deletion ends; or, to keep it, remove its finalizers and create it again at once",
	}
}

// equal counts an object that v3 has already as v1 has it.
func (r *run) equal(kind *resources.Kind, key client.ObjectKey, ours bool) {
	r.tracker.done(kind, equal(ours))
	r.skip(kind, key, ours)
}

// skip notes an object that v3 has already, unless it is ours.
func (r *run) skip(kind *resources.Kind, key client.ObjectKey, ours bool) {
	if ours {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = append(r.skipped, Skipped{Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Why: SkippedEqual})
}

// leave counts an object that is being deleted.
func (r *run) leave(kind *resources.Kind, v1 *unstructured.Unstructured) {
	r.mu.Lock()
	r.leaving.add(kind, v1)
	r.mu.Unlock()
	r.tracker.done(kind, terminating)
}

// judgeLeaving rejects the objects that are being deleted while others need them.
func (r *run) judgeLeaving(ctx context.Context) error {
	skipped, inUse, err := r.leftBehind(ctx, r.leaving, r.tracker)
	r.skipped, r.rejected = append(r.skipped, skipped...), append(r.rejected, inUse...)
	return err
}
