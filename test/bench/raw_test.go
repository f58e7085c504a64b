package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/scene"
)

// rawWorkers is how many creates are in flight.
const rawWorkers = 32

// rawCreates takes the migrated objects away and creates them again, as fast as a
// plain client can. Tiers stay: policies need theirs.
func rawCreates(ctx context.Context, s *scene.Scene, n int) (phaseTime, error) {
	objects, err := converted(ctx, s)
	if err != nil {
		return phaseTime{}, err
	}
	if len(objects) != n {
		return phaseTime{}, fmt.Errorf("%d objects to create, migrated were %d: the comparison would say nothing", len(objects), n)
	}
	err = each(ctx, objects, func(ctx context.Context, obj *unstructured.Unstructured) error {
		return s.Client.Delete(ctx, obj.DeepCopy())
	})
	if err != nil {
		return phaseTime{}, err
	}
	began, cpu := time.Now(), cpuTime(filepath.Dir(s.Kubeconfig))
	err = each(ctx, objects, func(ctx context.Context, obj *unstructured.Unstructured) error {
		return s.Client.Create(ctx, obj)
	})
	return phaseTime{wall: time.Since(began), cpu: cpuTime(filepath.Dir(s.Kubeconfig)) - cpu}, err
}

// converted is what the migration has made of the objects, without its mark.
func converted(ctx context.Context, s *scene.Scene) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range s.Registry.Kinds() {
		if kind.Name() == "Tier" {
			continue
		}
		schema, err := schemaOf(ctx, s.Client, kind)
		if err != nil {
			return nil, err
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.V1GVK())
		if err := s.Client.List(ctx, list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			conv, err := resources.Convert(kind, &list.Items[i], schema)
			if err != nil {
				return nil, err
			}
			out = append(out, conv.Object)
		}
	}
	return out, nil
}

func schemaOf(ctx context.Context, c client.Client, kind *resources.Kind) (*resources.Schema, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, types.NamespacedName{Name: kind.V3CRDName()}, crd); err != nil {
		return nil, err
	}
	return resources.NewSchema(crd, resources.V3Version)
}

// each calls do for every object, rawWorkers at a time.
func each(ctx context.Context, objects []*unstructured.Unstructured, do func(context.Context, *unstructured.Unstructured) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rawWorkers)
	for _, obj := range objects {
		g.Go(func() error {
			if err := do(ctx, obj); err != nil {
				return fmt.Errorf("%s %s: %w", obj.GetKind(), client.ObjectKeyFromObject(obj), err)
			}
			return nil
		})
	}
	return g.Wait()
}
