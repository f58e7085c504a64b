package runnertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errCrash is what a dead process sees of the API server.
var errCrash = errors.New("crash: the process is dead")

// crash is a moment to die at; the zero value is none.
type crash struct {
	// at counts writes from 1.
	at int
	// lost: the write is carried out, and its answer is lost.
	lost bool
}

func (c crash) String() string {
	if c.lost {
		return fmt.Sprintf("a crash right after write %d", c.at)
	}
	return fmt.Sprintf("a crash right before write %d", c.at)
}

// ref names an object that was written.
type ref struct {
	schema.GroupVersionKind
	client.ObjectKey
}

// recorder notes the writes of a run, and crashes once.
type recorder struct {
	client client.WithWatch
	point  crash

	mu    sync.Mutex
	noted []string
	refs  []ref
	dead  bool
	// crashed stays true after the restart.
	crashed bool
}

func (r *recorder) writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.noted)
}

func (r *recorder) written() []ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refs)
}

// restart is the next process; it does not crash.
func (r *recorder) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = false // the point has passed: writes are counted on
}

func (r *recorder) alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		return errCrash
	}
	return nil
}

// write notes a write and carries it out, unless it is time to die. An object of
// a generated name is known afterwards.
func (r *recorder) write(verb string, obj any, send func() error) error {
	if err := r.alive(); err != nil {
		return err
	}
	kind, err := r.kindOf(obj)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.noted = append(r.noted, verb+" "+kind.Kind)
	dies := len(r.noted) == r.point.at
	r.dead, r.crashed = dies, r.crashed || dies
	r.mu.Unlock()
	if dies && !r.point.lost {
		return errCrash
	}
	err = send()
	if name := nameOf(obj); name.Name != "" {
		r.mu.Lock()
		if written := (ref{kind, name}); !slices.Contains(r.refs, written) {
			r.refs = append(r.refs, written)
		}
		r.mu.Unlock()
	}
	if dies {
		return errCrash
	}
	return err
}

func (r *recorder) kindOf(obj any) (schema.GroupVersionKind, error) {
	switch o := obj.(type) {
	case runtime.Object:
		return r.client.GroupVersionKindFor(o)
	default: // an apply configuration
		u, err := asUnstructured(obj)
		return u.GroupVersionKind(), err
	}
}

// isReview tells a question in the form of a create: nothing is left of it.
func (r *recorder) isReview(obj client.Object) bool {
	kind, err := r.client.GroupVersionKindFor(obj)
	return err == nil && kind.Group == authorizationv1.GroupName
}

func nameOf(obj any) client.ObjectKey {
	if o, ok := obj.(client.Object); ok {
		return client.ObjectKeyFromObject(o)
	}
	u, err := asUnstructured(obj)
	if err != nil {
		return client.ObjectKey{}
	}
	return client.ObjectKeyFromObject(u)
}

// asUnstructured reads an apply configuration, generated or not.
func asUnstructured(obj any) (*unstructured.Unstructured, error) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return &unstructured.Unstructured{}, fmt.Errorf("cannot read a %T", obj)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: content}, err
}

// wrap is the client that the action gets.
func (r *recorder) wrap() client.Client {
	return interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := r.alive(); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := r.alive(); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if r.isReview(obj) {
				return errors.Join(r.alive(), c.Create(ctx, obj, opts...))
			}
			return r.write("create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return r.write("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error { //nolint:forbidigo // passes on what the action does, whatever it is
			return r.write("deleteAllOf", obj, func() error { return c.DeleteAllOf(ctx, obj, opts...) }) //nolint:forbidigo // passes on what the action does, whatever it is
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error { //nolint:forbidigo // passes on what the action does, whatever it is
			return r.write("update", obj, func() error { return c.Update(ctx, obj, opts...) }) //nolint:forbidigo // passes on what the action does, whatever it is
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return r.write("patch", obj, func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if all := (&client.ApplyOptions{}).ApplyOptions(opts); len(all.DryRun) > 0 {
				return c.Apply(ctx, obj, opts...) // it changes nothing
			}
			return r.write("apply", obj, func() error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			return r.write("create "+sub+" of", obj, func() error { return c.SubResource(sub).Create(ctx, obj, body, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return r.write("update "+sub+" of", obj, func() error { return c.SubResource(sub).Update(ctx, obj, opts...) }) //nolint:forbidigo // passes on what the action does, whatever it is
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return r.write("patch "+sub+" of", obj, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return r.write("apply "+sub+" of", obj, func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	})
}
