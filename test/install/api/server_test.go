package api_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// shared is the API server of all tests here: each test has an object of its own.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

// startServer installs our CRDs over those of a peer that asks for nothing, under
// which the objects of legacy() were made.
func startServer() (*harness.Cluster, error) {
	ctx := context.Background()
	c, err := harness.Start(ctx, harness.Options{
		Own:     true, // a manager at work on a cluster that is given would meddle
		Without: []string{"fakenodes", "scheduler", "controller-manager"},
		Types:   []func(*runtime.Scheme) error{v1beta1.AddToScheme},
	})
	if err != nil {
		return nil, err
	}
	if err := install(ctx, c); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func install(ctx context.Context, c *harness.Cluster) error {
	ours, err := crds.ReadDir(filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds"))
	if err != nil {
		return err
	}
	var lax []*unstructured.Unstructured
	for _, crd := range ours {
		if crd.GetName() == v1beta1.CRDName {
			crd = crd.DeepCopy()
			relax(crd.Object)
			lax = append(lax, crd)
		}
	}
	if err := crds.Install(ctx, c.Config, crds.Set{CRDs: lax}); err != nil {
		return err
	}
	for name, spec := range legacy {
		if err := c.Client.Create(ctx, server("v1beta1", name, spec)); err != nil {
			return err
		}
	}
	return crds.Install(ctx, c.Config, crds.Set{CRDs: ours})
}

// relax takes every rule that is not the peer's out of a CRD.
func relax(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "x-kubernetes-validations")
		delete(v, "minLength")
		for _, child := range v {
			relax(child)
		}
	case []any:
		for _, child := range v {
			relax(child)
		}
	}
}

// server is an MCPServer as a user writes it.
func server(version, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		u.Object["spec"] = runtime.DeepCopyJSON(spec)
	}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: v1beta1.GroupVersion.Group, Version: version, Kind: "MCPServer"})
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// ruled answers a client of the API server once that enforces the rules: it takes
// them over a moment after the CRD was written.
func ruled(t *testing.T) client.Client {
	t.Helper()
	c := shared.Cluster(t).Client
	harness.Eventually(t, "the rules to be enforced", func() error {
		err := c.Create(t.Context(), server("v1beta1", "mcpserver", map[string]any{"image": "i"}), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return errors.New("a server called mcpserver is accepted")
		}
		return nil
	})
	return c
}
