package fakeapiserver

import (
	"context"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver/v1form"
)

// store serves one kind, in one namespace if it has one, out of its v1 objects.
type store struct {
	kind *resources.Kind
	v1   dynamic.ResourceInterface
	sub  []string // the subresource addressed, if any

	watches *watches
}

func (s *store) resource() schema.GroupResource { return s.kind.V3GVR().GroupResource() }

// find returns the v1 object behind a v3 name. A tiered policy written before Calico v3.30 is still
// stored under a prefix.
func (s *store) find(ctx context.Context, name string) (v1, v3 *unstructured.Unstructured, err error) {
	for _, v1Name := range v1form.Names(s.kind, name) {
		obj, err := s.v1.Get(ctx, v1Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		view, err := v1form.ToV3(s.kind, obj)
		if err != nil {
			return nil, nil, err
		}
		if view.GetName() == name {
			return obj, view, nil
		}
	}
	return nil, nil, apierrors.NewNotFound(s.resource(), name)
}

func (s *store) get(ctx context.Context, name string) (*result, error) {
	_, view, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return &result{http.StatusOK, view}, nil
}

func (s *store) create(r *http.Request) (*result, error) {
	if s.kind.Name() == "ClusterInformation" {
		return nil, apierrors.NewForbidden(s.resource(), "default", errReadOnlyKind)
	}
	obj, err := readObject(r)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + utilrand.String(5))
	}
	if ns := r.PathValue("namespace"); ns != "" {
		obj.SetNamespace(ns)
	}
	obj.SetUID("")
	obj.SetResourceVersion("")
	v1, err := v1form.FromV3(s.kind, obj, obj.GetName())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	query := r.URL.Query()
	var opts metav1.CreateOptions
	if err := metav1.Convert_url_Values_To_v1_CreateOptions(&query, &opts, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	created, err := s.v1.Create(r.Context(), v1, opts)
	return s.answer(http.StatusCreated, created, refused(err))
}

func (s *store) update(r *http.Request, name string) (*result, error) {
	obj, err := readObject(r)
	if err != nil {
		return nil, err
	}
	if obj.GetName() != name {
		return nil, apierrors.NewBadRequest("the name in the object is not the one in the path")
	}
	v1, _, err := s.find(r.Context(), name)
	if err != nil {
		return nil, err
	}
	updated, err := s.write(r, v1, obj)
	return s.answer(http.StatusOK, updated, err)
}

// write stores the v3 object in the place of the v1 one. An object without a resourceVersion
// overwrites whatever is there, as it does in Calico's server.
func (s *store) write(r *http.Request, old, v3 *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	v1, err := v1form.FromV3(s.kind, v3, old.GetName())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	v1.SetNamespace(old.GetNamespace())
	if v1.GetResourceVersion() == "" {
		v1.SetResourceVersion(old.GetResourceVersion())
	}
	query := r.URL.Query()
	var opts metav1.UpdateOptions
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&query, &opts, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	updated, err := s.v1.Update(r.Context(), v1, opts, s.sub...)
	return updated, refused(err)
}

// refused is what becomes of a refusal of v1, by RBAC or by a policy: Calico's API server answers it as an internal error.
func refused(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "connection is unauthorized: " + err.Error(),
	}}
}

func (s *store) delete(r *http.Request, name string) (*result, error) {
	opts, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	v1, view, err := s.find(r.Context(), name)
	if err != nil {
		return nil, err
	}
	if err := s.v1.Delete(r.Context(), v1.GetName(), opts); err != nil {
		return nil, refused(err)
	}
	return &result{http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: name, Group: resources.V3Group, Kind: s.kind.V3Plural(), UID: view.GetUID()},
	}}, nil
}

func deleteOptions(r *http.Request) (metav1.DeleteOptions, error) {
	query := r.URL.Query()
	var opts metav1.DeleteOptions
	if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, &opts, nil); err != nil {
		return opts, apierrors.NewBadRequest(err.Error())
	}
	body, err := readBody(r)
	if err != nil {
		return opts, err
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &opts); err != nil {
			return opts, apierrors.NewBadRequest("decode the delete options: " + err.Error())
		}
	}
	// The TypeMeta names the version of the caller's group, which the v1 API would refuse.
	opts.TypeMeta = metav1.TypeMeta{}
	if p := opts.Preconditions; p != nil && p.UID != nil {
		raw, err := resources.ReverseUID(*p.UID)
		if err != nil {
			return opts, apierrors.NewBadRequest(err.Error())
		}
		opts.Preconditions = &metav1.Preconditions{UID: &[]types.UID{raw}[0], ResourceVersion: p.ResourceVersion}
	}
	return opts, nil
}

// answer shows a stored object as v3.
func (s *store) answer(code int, v1 *unstructured.Unstructured, err error) (*result, error) {
	if err != nil {
		return nil, err
	}
	view, err := v1form.ToV3(s.kind, v1)
	if err != nil {
		return nil, err
	}
	return &result{code, view}, nil
}
