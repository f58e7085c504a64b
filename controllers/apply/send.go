package apply

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// send applies want, by force, and answers what the object is now.
func send[T client.Object](ctx context.Context, a Applier, want T) (now T, err error) {
	body, err := bodyOf(a.Client, want)
	if err != nil {
		return now, err
	}
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(a.Manager), client.ForceOwnership)
	if err != nil {
		return now, fmt.Errorf("apply %s: %w", describe(a.Client, want), err)
	}
	return typedLike(want, body.Object)
}

// bodyOf is obj as it is sent: what a Go type cannot leave out is left out.
func bodyOf(c client.Client, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(c, obj), err)
	}
	delete(fields, "status")
	dropNulls(fields)
	body := &unstructured.Unstructured{Object: fields}
	body.SetGroupVersionKind(gvk)
	return body, nil
}

// dropNulls removes null fields: an apply would own them.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
			}
			dropNulls(inner)
		}
	case []any:
		for _, inner := range v {
			dropNulls(inner)
		}
	}
}

// typedLike decodes fields into a new object of the type that sample has.
func typedLike[T client.Object](sample T, fields map[string]any) (T, error) {
	obj := reflect.New(reflect.TypeOf(sample).Elem()).Interface().(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj); err != nil {
		return obj, fmt.Errorf("decode %T: %w", obj, err)
	}
	return obj, nil
}
