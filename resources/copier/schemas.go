package copier

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

type cachedSchema struct {
	uid        types.UID
	generation int64
	schema     *resources.Schema
}

// of is nil for a CRD that nobody has asked for.
func (s *schemaCache) of(crdName string) *cachedSchema {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached, ok := s.known[crdName]; ok {
		return &cached
	}
	return nil
}

// schema returns that of the kind's v3 CRD as it is now: nil if the CRD has none, or does not exist. As
// long as the CRD is the same, it is the same pointer.
func (c *Copier) schema(ctx context.Context, kind *resources.Kind) (*resources.Schema, error) {
	if cached := c.schemas.of(kind.V3CRDName()); cached != nil {
		now := &metav1.PartialObjectMetadata{} // the CRD itself may be a hundred times larger
		now.SetGroupVersionKind(crdKind)
		err := c.try(ctx, func() error { return c.c.Get(ctx, client.ObjectKey{Name: kind.V3CRDName()}, now) })
		if err == nil && cached.uid == now.UID && cached.generation == now.Generation {
			return cached.schema, nil
		}
	}
	crd, err := c.crd(ctx, kind.V3CRDName())
	if err != nil || crd == nil {
		return nil, err
	}
	c.schemas.mu.Lock()
	defer c.schemas.mu.Unlock()
	if cached, ok := c.schemas.known[crd.Name]; ok && cached.uid == crd.UID && cached.generation == crd.Generation {
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
	obj, err := c.get(ctx, crdKind, client.ObjectKey{Name: name})
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
