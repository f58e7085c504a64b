package copier

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
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

// of returns the schema of the kind's v3 CRD as it is now: nil if the CRD has none, or does not exist. As
// long as the CRD is the same, it is the same pointer.
func (s *schemaCache) of(ctx context.Context, a *api, kind *resources.Kind) (*resources.Schema, error) {
	if cached, ok := s.cached(kind.V3CRDName()); ok {
		now, err := a.getMeta(ctx, crdKind, client.ObjectKey{Name: kind.V3CRDName()}) // the CRD itself may be a hundred times larger
		if err == nil && cached.is(now) {
			return cached.schema, nil
		}
	}
	crd, err := a.crd(ctx, kind.V3CRDName())
	if err != nil || crd == nil {
		return nil, err
	}
	schema, err := resources.NewSchema(crd, resources.V3Version)
	if err != nil {
		return nil, err
	}
	return s.keep(crd, schema), nil
}

func (s *schemaCache) cached(crdName string) (cachedSchema, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cached, ok := s.known[crdName]
	return cached, ok
}

// keep returns the schema that others use: another goroutine may have been faster.
func (s *schemaCache) keep(crd metav1.Object, schema *resources.Schema) *resources.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached, ok := s.known[crd.GetName()]; ok && cached.is(crd) {
		return cached.schema
	}
	if s.known == nil {
		s.known = map[string]cachedSchema{}
	}
	s.known[crd.GetName()] = cachedSchema{uid: crd.GetUID(), generation: crd.GetGeneration(), schema: schema}
	return schema
}

func (c cachedSchema) is(crd metav1.Object) bool {
	return c.uid == crd.GetUID() && c.generation == crd.GetGeneration()
}
