package fakeapiserver

import (
	"errors"
	"fmt"
	"mime"
	"net/http"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

var errReadOnlyKind = errors.New("the object is made by Calico itself and may only be updated")

// patch applies a merge or JSON patch to the v3 view and stores the outcome. A patch that names no
// resourceVersion is tried again when another writer was faster.
func (s *store) patch(r *http.Request, name string) (*result, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, apierrors.NewBadRequest("content type of the patch: " + err.Error())
	}
	var updated *unstructured.Unstructured
	pinned := false // the patch names a resourceVersion: trying again cannot help
	err = retry.OnError(retry.DefaultRetry, func(err error) bool { return !pinned && apierrors.IsConflict(err) }, func() error {
		v1, view, err := s.find(r.Context(), name)
		if err != nil {
			return err
		}
		patched, err := applyPatch(view, types.PatchType(mediaType), body)
		if err != nil {
			return err
		}
		pinned = patched.GetResourceVersion() != view.GetResourceVersion()
		updated, err = s.write(r, v1, patched)
		return err
	})
	return s.answer(http.StatusOK, updated, err)
}

func applyPatch(view *unstructured.Unstructured, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	doc, err := view.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", view.GetName(), err)
	}
	switch kind {
	case types.MergePatchType:
		doc, err = jsonpatch.MergePatch(doc, patch)
	case types.JSONPatchType:
		var ops jsonpatch.Patch
		if ops, err = jsonpatch.DecodePatch(patch); err == nil {
			doc, err = ops.Apply(doc)
		}
	default:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the stand-in takes merge and JSON patches, not %s", kind),
		}}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("apply the patch: " + err.Error())
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(doc); err != nil {
		return nil, apierrors.NewBadRequest("the patched object: " + err.Error())
	}
	return out, nil
}
