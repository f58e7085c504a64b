package copier

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// schemaCache keeps compiled schemas as long as their CRD does not change: compiling the rules of a
// policy kind takes longer than validating a thousand policies.
type schemaCache struct {
	mu    sync.Mutex
	known map[string]cachedSchema // by CRD name
}

type cachedSchema struct {
	uid        types.UID
	generation int64
	schema     *resources.Schema
}

// schema returns that of the kind's v3 CRD as it is now: nil if the CRD has none, or does not exist.
func (c *Copier) schema(ctx context.Context, kind *resources.Kind) (*resources.Schema, error) {
	crd, err := c.crd(ctx, kind.V3CRDName())
	if err != nil || crd == nil {
		return nil, err
	}
	c.schemas.mu.Lock()
	defer c.schemas.mu.Unlock()
	cached, ok := c.schemas.known[crd.Name]
	if ok && cached.uid == crd.UID && cached.generation == crd.Generation {
		return cached.schema, nil
	}
	schema, err := resources.NewSchema(crd, resources.V3Version)
	if err != nil {
		return nil, err
	}
	if c.schemas.known == nil {
		c.schemas.known = map[string]cachedSchema{}
	}
	c.schemas.known[crd.Name] = cachedSchema{uid: crd.UID, generation: crd.Generation, schema: schema}
	return schema, nil
}

// crd returns nil without error if there is no such CRD.
func (c *Copier) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := c.get(ctx, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), client.ObjectKey{Name: name})
	if apierrors.Classify(err) == apierrors.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read crd %s: %w", name, err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd); err != nil {
		return nil, fmt.Errorf("read crd %s: %w", name, err)
	}
	return crd, nil
}
