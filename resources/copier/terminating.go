package copier

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// terminatingV1 is a v1 object that is being deleted.
type terminatingV1 struct {
	kind *resources.Kind
	v1   *unstructured.Unstructured
}

// judgeTerminating separates the objects that are being deleted: v3 may lack those that nothing needs. The others live
// on as long as something needs them, so that v3 would lack a pool that has addresses, or a tier that has policies: they
// are rejected.
func (n *notebook) judgeTerminating(ctx context.Context, source *Source) error {
	for _, t := range n.terminating.all {
		users, err := source.users(ctx, t.kind, t.v1)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			n.rejected.add(deletedInUse(t.kind, t.v1, users))
			n.tracker.moved(t.kind, terminating, rejected)
			continue
		}
		name := t.v1.GetName()
		if conv, err := resources.Convert(t.kind, t.v1, nil); err == nil {
			name = conv.Object.GetName()
		}
		n.skipped.add(Skipped{Kind: t.kind.Name(), Namespace: t.v1.GetNamespace(), Name: name, Why: SkippedTerminating})
	}
	return nil
}

// users are the v1 objects that keep another one from going.
func (s *Source) users(ctx context.Context, of *resources.Kind, v1 *unstructured.Unstructured) (users []string, err error) {
	for _, kind := range s.reg.Kinds() {
		if kind.Needs() != of.Name() {
			continue
		}
		err := s.EachV1(ctx, kind, func(obj *unstructured.Unstructured) error {
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
	return problemOf(kind, client.ObjectKeyFromObject(v1), resources.ReasonDeletedInUse,
		fmt.Sprintf("is being deleted, and %d %s it: %s", len(users), need, list),
		"delete or move what needs it, so that the deletion ends; or, to keep it, remove its finalizers and create it again at once")
}
