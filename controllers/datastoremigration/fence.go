package datastoremigration

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
)

func (s *steps) fenceV1(_ context.Context, _ *scope) (outputs, error) { return nil, nil }

func (s *steps) unfenceV1(_ context.Context, _ *scope) (outputs, error) { return nil, nil }

func (s *steps) fenceRights() []rbacv1.PolicyRule { return nil }

func (s *steps) unfenceRights() []rbacv1.PolicyRule { return nil }
