package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationSilent on the pod template is when a proxy found the server silent.
const annotationSilent = "mcpserver.toolhive.stacklok.dev/restarted-silent-at"

// Restarter makes a function that has the pods of the MCP server of that name
// replaced, as `kubectl rollout restart` does. It returns once that was asked for.
func Restarter(c client.Client, namespace, server string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{annotationSilent: time.Now().UTC().Format(time.RFC3339)}}}}})
		if err != nil {
			return err
		}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: server}}
		if err := c.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("restart StatefulSet %s/%s: %w", namespace, server, err)
		}
		return nil
	}
}
