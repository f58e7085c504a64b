package equality

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver/v1form"
)

const pageSize = 500

// Reader lists both sides, without the product's client code.
type Reader struct {
	Client   dynamic.Interface
	Registry *resources.Registry
}

// V1 reads every v1 object and shows it as Calico's aggregated API server did before
// owners were taken off.
func (r Reader) V1(ctx context.Context) (Side, error) {
	out := Side{}
	for _, kind := range r.Registry.Kinds() {
		items, err := r.list(ctx, kind.V1GVR())
		if err != nil {
			return nil, err
		}
		for i := range items {
			if err := reattach(&items[i]); err != nil {
				return nil, fmt.Errorf("read the owners of %s %s: %w", kind.Name(), items[i].GetName(), err)
			}
			shown, err := v1form.ToV3(kind, &items[i])
			if err != nil {
				return nil, fmt.Errorf("show %s %s as v3: %w", kind.Name(), items[i].GetName(), err)
			}
			out[keyOf(kind, shown)] = shown
		}
	}
	return out, nil
}

// reattach reads the note of a migration about the owners of an object.
func reattach(v1 *unstructured.Unstructured) error {
	annotations := v1.GetAnnotations()
	text, found := annotations[migrationv1.AnnotationDetachedOwners]
	if !found {
		return nil
	}
	var note struct {
		Metadata        string
		OwnerReferences []metav1.OwnerReference
	}
	if err := json.Unmarshal([]byte(text), &note); err != nil {
		return err
	}
	if note.Metadata != "" {
		annotations[resources.MetadataAnnotation] = note.Metadata
		v1.SetAnnotations(annotations)
	}
	if len(note.OwnerReferences) > 0 {
		v1.SetOwnerReferences(note.OwnerReferences)
	}
	return nil
}

// V3 reads what clients get now.
func (r Reader) V3(ctx context.Context) (Side, error) {
	out := Side{}
	for _, kind := range r.Registry.Kinds() {
		items, err := r.list(ctx, kind.V3GVR())
		if err != nil {
			return nil, err
		}
		for i := range items {
			out[keyOf(kind, &items[i])] = &items[i]
		}
	}
	return out, nil
}

func keyOf(kind *resources.Kind, obj *unstructured.Unstructured) Key {
	return Key{Kind: kind.Name(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func (r Reader) list(ctx context.Context, gvr schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	for next := ""; ; {
		page, err := r.Client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
		}
		items = append(items, page.Items...)
		if next = page.GetContinue(); next == "" {
			return items, nil
		}
	}
}
