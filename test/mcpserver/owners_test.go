package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// authzManager is the field manager of a controller that owns a part of the spec.
const authzManager = "authz-controller"

// authz is what it applies: a field that an older controller does not know, with a default of ToolHive's CRD.
var authz = map[string]any{
	"authzConfig": map[string]any{"type": "inline", "inline": map[string]any{"entitiesJson": "[]", "policies": []any{"permit(principal, action, resource);"}}},
}

func TestFieldsOfAnotherOwnerSurvive(t *testing.T) {
	s := newSpace(t)
	s.create("fetch", accepting("authzConfig"))
	if err := s.authzSurvives("fetch", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if got := s.get("fetch").Status.Phase; got != "Ready" {
		t.Errorf("phase %s, want Ready: the spec's owners do not matter to it", got)
	}
	s.describes("fetch", v1beta1.ConditionSpecEnforced, "authzConfig")
}

// What must not be: the same story, in which one more controller sets the finalizer with an
// Update of what its own types know of the object.
func TestFieldsOfAnotherOwnerDoNotSurviveAnUpdate(t *testing.T) {
	s := newSpace(t)
	s.create("fetch", accepting("authzConfig"))
	err := s.authzSurvives("fetch", func() error { return s.naiveUpdate("fetch") })
	var lost *lostError
	if !errors.As(err, &lost) {
		t.Fatalf("got %v, want that fields were lost: the other test could not fail", err)
	}
	t.Log(err)
	s.awaitPhase("fetch", "Ready") // what is lost is not ours to miss
}

// lostError tells which write took fields of another owner away.
type lostError struct{ after, diff string }

func (e *lostError) Error() string {
	return fmt.Sprintf("after %s, fields of another owner are not as it applied them (-want +got):\n%s", e.after, e.diff)
}

// authzSurvives lets another owner apply fields of the spec right after the server
// was created, looks at them whenever something was written by others, and runs also
// before each look.
func (s *space) authzSurvives(name string, also func() error) error {
	s.t.Helper()
	applied := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(authz)}}
	applied.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
	applied.SetNamespace(s.ns)
	applied.SetName(name)
	if err := s.Client.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(authzManager)); err != nil {
		return err
	}
	look := func(after string) error {
		if err := also(); err != nil {
			return err
		}
		return s.authzIsThere(name, after)
	}
	s.until(name, "with a finalizer", func(srv *v1beta1.MCPServer) error {
		if !slices.Contains(srv.Finalizers, mcpServerFinalizer) {
			return errors.New("none")
		}
		return nil
	})
	if err := look("the finalizer was added"); err != nil {
		return err
	}
	s.awaitPhase(name, "Ready")
	s.annotate(name, map[string]string{v1beta1.AnnotationRestartedAt: request})
	s.awaitRestarted(name, request)
	if err := look("a restart"); err != nil {
		return err
	}
	for i := range 50 {
		s.touch(name, i)
	}
	return look("50 reconciles")
}

// authzIsThere compares the fields, and who owns them.
func (s *space) authzIsThere(name, after string) error {
	s.t.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
	s.read(name, live)
	spec, _, err := unstructured.NestedMap(live.Object, "spec")
	if err != nil {
		return err
	}
	got := map[string]any{}
	for field := range authz {
		if value, found := spec[field]; found {
			got[field] = value
		}
	}
	owns := slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == authzManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
	diff := cmp.Diff(authz, got)
	if !owns {
		diff += authzManager + " does not own a field any more"
	}
	if diff == "" {
		return nil
	}
	return &lostError{after, diff}
}

// narrow is an MCPServer as a controller has it that was built before the fields came.
type narrow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Image     string `json:"image"`
		Transport string `json:"transport,omitempty"`
	} `json:"spec"`
}

// naiveUpdate reads the server, makes sure of its finalizer, and writes all of it back.
func (s *space) naiveUpdate(name string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
		if err := s.Client.Get(context.WithoutCancel(s.t.Context()), client.ObjectKey{Namespace: s.ns, Name: name}, live); err != nil {
			return err
		}
		known := &narrow{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, known); err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(known)
		if err != nil {
			return err
		}
		all := &unstructured.Unstructured{Object: content}
		controllerutil.AddFinalizer(all, mcpServerFinalizer)
		return s.Client.Update(s.t.Context(), all)
	})
}
