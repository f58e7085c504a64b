package rbac

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// atATime bounds the questions in flight.
const atATime = 8

// Asking is the right that Missing itself needs. Clusters give it to everybody
// (system:basic-user), unless somebody has taken it away.
var Asking = Rule("create", "authorization.k8s.io", "selfsubjectaccessreviews")

// Missing asks the API server which needs the client's account may not do, in the
// order given. It changes nothing, and may be called any number of times. The error
// is that of a question that was not answered.
func Missing(ctx context.Context, c client.Client, needs []Need) ([]Need, error) {
	denied := make([]bool, len(needs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for i, n := range needs {
		group.Go(func() error {
			review := question(n)
			if err := c.Create(ctx, review); err != nil {
				return fmt.Errorf("ask whether this account may %s: %w", n, err)
			}
			denied[i] = !review.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []Need
	for i, n := range needs {
		if denied[i] {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

func question(n Need) *authorizationv1.SelfSubjectAccessReview {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if n.URL != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: n.URL, Verb: n.Verb}
		return review
	}
	resource, subresource, _ := strings.Cut(n.Resource, "/")
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Group: n.Group, Resource: resource, Subresource: subresource, Name: n.Name, Namespace: n.Namespace, Verb: n.Verb, Version: "*",
	}
	return review
}
