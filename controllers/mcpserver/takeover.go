package mcpserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// peersConditions are about what this proxy does not do. After a change from the
// peer's operator nobody else would take away what they said last.
var peersConditions = []string{
	"RateLimitConfigValid", "GroupRefValidated", "CABundleRefValidated", "OIDCConfigRefValidated", "AuthzConfigRefValidated",
	"AuthServerRefValidated", "TelemetryConfigRefValidated", "WebhookConfigValidated", "AuthzPrimaryUpstreamProviderIgnored",
}

// makeRoom takes spec.strategy.rollingUpdate away where it does not fit what is
// wanted. An apply cannot: the API server filled it in for the peer, whose field
// it stays, and refuses it beside Recreate. Nothing is written otherwise.
func (s *steps) makeRoom(ctx context.Context, srv *server, live, desired *appsv1.Deployment) error {
	if live == nil || !controlled(srv, live) || live.DeletionTimestamp != nil ||
		live.Spec.Strategy.RollingUpdate == nil || desired.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	before := live.DeepCopy()
	live.Spec.Strategy = desired.Spec.Strategy
	if err := s.client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change the strategy of Deployment %s/%s to Recreate: %w", live.Namespace, live.Name, err)
	}
	return nil
}
