package datastoremigration

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
)

// DetachAction is the name of the action whose rights are to read everything.
const DetachAction = "DetachDependents"

func (s *steps) detachDependents(_ context.Context, _ *scope) (outputs, error) { return nil, nil }

func (s *steps) attachDependents(_ context.Context, _ *scope) (outputs, error) { return nil, nil }

func (s *steps) dependentsRights() []rbacv1.PolicyRule { return nil }
