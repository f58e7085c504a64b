package fakeapiserver

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wantsMetadata tells whether a client asked for metadata only, as the garbage
// collector does, which otherwise would not see what the stand-in serves: a watch of
// whole objects of a kind that it has no type for is an error to it.
func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shownTo is a body in the form that the client asked for.
func shownTo(r *http.Request, body any) any {
	if !wantsMetadata(r) {
		return body
	}
	switch body := body.(type) {
	case *unstructured.Unstructured:
		return metadataOf(body)
	case *unstructured.UnstructuredList:
		items := make([]any, len(body.Items))
		for i := range body.Items {
			items[i] = metadataOf(&body.Items[i]).Object
		}
		return map[string]any{
			"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadataList",
			"metadata": body.Object["metadata"], "items": items,
		}
	}
	return body
}

func metadataOf(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadata",
		"metadata": obj.Object["metadata"],
	}}
}
