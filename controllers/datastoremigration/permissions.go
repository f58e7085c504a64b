package datastoremigration

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/phasegate/phasegate/resources"
)

// permission is one thing that this program must be allowed to do.
type permission struct {
	group, resource, name, namespace string
	verbs                            []string
}

// permissions lists what a migration needs from begin to end, clean-up and
// abort included: what is missing must be known before the lock.
func (s *steps) permissions() []permission {
	lock := s.Registry.Lock()
	needs := []permission{
		{group: "apiregistration.k8s.io", resource: "apiservices", name: apiServiceName, verbs: []string{"get", "patch"}},
		{group: "apiregistration.k8s.io", resource: "apiservices", verbs: []string{"create"}},
		{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: []string{"get", "list", "watch", "delete"}},
		{group: "apps", resource: "daemonsets", namespace: s.CalicoNamespace, verbs: []string{"get", "list", "watch"}},
		{group: "apps", resource: "deployments", namespace: s.CalicoNamespace, verbs: []string{"get", "list", "watch"}},
		{group: resources.V1Group, resource: lock.V1Plural(), verbs: []string{"get", "list", "patch"}},
		{group: resources.V3Group, resource: lock.V3Plural(), verbs: []string{"get", "list", "create", "patch", "delete"}},
	}
	for _, kind := range s.Registry.Kinds() {
		needs = append(needs,
			permission{group: resources.V1Group, resource: kind.V1Plural(), verbs: []string{"get", "list"}},
			permission{group: resources.V3Group, resource: kind.V3Plural(), verbs: []string{"get", "list", "create", "patch", "delete"}})
	}
	return needs
}

// missingPermissions asks the API server about each of them.
func (s *steps) missingPermissions(ctx context.Context, _ *migration) ([]string, error) {
	needs := s.permissions()
	missing := make([][]string, len(needs))
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, need := range needs {
		for _, verb := range need.verbs {
			group.Go(func() error {
				allowed, err := s.allowed(ctx, need, verb)
				if err == nil && !allowed {
					mu.Lock()
					defer mu.Unlock()
					missing[i] = append(missing[i], verb)
				}
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var blockers []string
	for i, verbs := range missing {
		if len(verbs) > 0 {
			blockers = append(blockers, needs[i].String(verbs))
		}
	}
	return blockers, nil
}

func (p permission) String(verbs []string) string {
	text := fmt.Sprintf("RBAC: this service account may not %s %s.%s", strings.Join(verbs, ", "), p.resource, p.group)
	if p.name != "" {
		text += " " + p.name
	}
	if p.namespace != "" {
		text += " in namespace " + p.namespace
	}
	return text + ": grant it with a ClusterRole"
}

func (s *steps) allowed(ctx context.Context, p permission, verb string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: p.group, Resource: p.resource, Name: p.name, Namespace: p.namespace, Verb: verb, Version: "*",
		},
	}}
	if err := s.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether %s %s.%s is allowed: %w", verb, p.resource, p.group, err)
	}
	return review.Status.Allowed, nil
}
