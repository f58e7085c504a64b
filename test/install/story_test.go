package install

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// objects is how many v1 objects there are: their number is not the point.
const objects = 150

// obstacle is an object of the fixture that is in v3 already, with other content.
const obstacle = "blocklist-0"

// TestStory tells what becomes of an installation, from the first to the last command. Each
// chapter goes on where the one before it ended.
func TestStory(t *testing.T) {
	w := newWorld(t, setup.Options{
		Cluster: harness.Options{Own: true, Audit: true}, Objects: fixture.Demo(1, objects), NoCRD: true, BeforeStandIn: furnish,
	})
	chapters := []struct {
		title string
		tell  func(*testing.T, *world)
	}{
		{"install the chart", install},
		{"what each account may do", accounts},
		{"helm test", helmTest},
		{"a check names each right that is missing", missingRights},
		{"a migration names what is missing", missingInPreflight},
		{"a mistake in the values", mistakes},
		{"another poll interval", pollInterval},
		{"abort", abort},
		{"upgrade with a migration in flight", upgrade},
		{"the leader goes", leaderGoes},
		{"uninstall with a migration in flight", uninstall},
		{"to the end", complete},
		{"clean up", cleanUp},
		{"an MCP server", mcpServer},
		{"metrics", scrape},
		{"no right is unused", unusedRights},
		{"uninstall for good", uninstallForGood},
	}
	for _, c := range chapters {
		told := t.Run(c.title, func(t *testing.T) {
			defer w.showLogs(t)
			c.tell(t, w)
		})
		if !told {
			t.Fatalf("%q failed: the story cannot go on", c.title)
		}
	}
}

// furnish puts what others have installed on the cluster: ToolHive's kinds, owners, and an object in the way.
func furnish(ctx context.Context, s *setup.Setup) error {
	set := crds.Set{CRDs: []*unstructured.Unstructured{
		othersCRD("MCPToolConfig", "mcptoolconfig"), othersCRD("MCPExternalAuthConfig", "mcpexternalauthconfig"),
		othersCRD("MCPGroup", "mcpgroup"),
	}}
	if err := crds.Install(ctx, s.Config, set); err != nil {
		return err
	}
	if err := ownEachKind(ctx, s); err != nil {
		return err
	}
	return obstruct(ctx, s.Client)
}

// ownEachKind gives one v1 object of each kind an owner in Calico, from which a migration has to detach it.
func ownEachKind(ctx context.Context, s *setup.Setup) error {
	tier := &unstructured.Unstructured{}
	tier.SetGroupVersionKind(schema.GroupVersionKind{Group: resources.V1Group, Version: resources.V1Version, Kind: "Tier"})
	if err := s.Client.Get(ctx, types.NamespacedName{Name: fixture.OwnerTier}, tier); err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: tier.GetAPIVersion(), Kind: tier.GetKind(), Name: tier.GetName(), UID: tier.GetUID()}
	for _, kind := range s.Registry.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.V1GVK())
		if err := s.Client.List(ctx, list); err != nil {
			return err
		}
		at := slices.IndexFunc(list.Items, func(obj unstructured.Unstructured) bool { return obj.GetUID() != owner.UID })
		if at < 0 {
			return fmt.Errorf("there is no v1 %s to be owned", kind.Name())
		}
		owned := &list.Items[at]
		before := owned.DeepCopy()
		owned.SetOwnerReferences([]metav1.OwnerReference{owner})
		if err := s.Client.Patch(ctx, owned, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// obstruct puts an object of the fixture into v3, with other content.
func obstruct(ctx context.Context, c client.Client) error {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"192.0.2.99/32"}}}}
	obj.SetAPIVersion("projectcalico.org/v3")
	obj.SetKind("GlobalNetworkSet")
	obj.SetName(obstacle)
	return c.Create(ctx, obj)
}
