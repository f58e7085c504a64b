package bench

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/setup"
)

// settled returns when the garbage collector watches all kinds, as it does on any cluster that is older than a
// minute. It looks for new ones every 30 s, and the first look lists every object at once: that would fall into
// the middle of what is measured. It shows by deleting an object whose owner never was: one of v1, because a
// watch of v3 that began before Calico's API server did knows for minutes nothing of what that serves.
// A short run is not for keeping, and would wait most of its time: it goes on at once.
func settled(ctx context.Context, s *setup.Setup) error {
	if os.Getenv(objectsEnv) != "" {
		return nil
	}
	orphan := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"192.0.2.0/24"}}}}
	orphan.SetAPIVersion(resources.V1Group + "/" + resources.V1Version)
	orphan.SetKind("GlobalNetworkSet")
	orphan.SetName("orphan")
	orphan.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: orphan.GetAPIVersion(), Kind: orphan.GetKind(), Name: "never-was", UID: uuid.NewUUID()}})
	if err := s.Client.Create(ctx, orphan); err != nil {
		return fmt.Errorf("create an object for the garbage collector: %w", err)
	}
	return s.AwaitGone(ctx, orphan, patience)
}
