package fakeapiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/phasegate/phasegate/resources"
)

const (
	root = "/apis/" + groupVersion
	// maxBody is kube-apiserver's own limit for a request.
	maxBody = 3 << 20
)

type handler struct {
	client  dynamic.Interface
	kinds   map[string]*resources.Kind // by v3 plural
	watches watches
	mux     *http.ServeMux
}

func newHandler(reg *resources.Registry, client dynamic.Interface) *handler {
	h := &handler{client: client, kinds: map[string]*resources.Kind{}, mux: http.NewServeMux()}
	for _, k := range reg.All() {
		h.kinds[k.V3Plural()] = k
	}
	static := func(doc any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, doc) }
	}
	mux := h.mux
	mux.HandleFunc("GET /apis", static(apiGroupList()))
	mux.HandleFunc("GET /apis/"+resources.V3Group, static(apiGroup()))
	mux.HandleFunc("GET "+root, static(apiResources(reg)))
	mux.HandleFunc("GET "+root+"/"+profiles, static(profileList()))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	for _, prefix := range []string{root, root + "/namespaces/{namespace}"} {
		mux.HandleFunc(prefix+"/{plural}", h.serve(h.collection))
		mux.HandleFunc(prefix+"/{plural}/{name}", h.serve(h.item))
		mux.HandleFunc(prefix+"/{plural}/{name}/{sub}", h.serve(h.item))
	}
	return h
}

// result is what a request is answered with.
type result struct {
	code int
	body any
}

type serveFunc func(w http.ResponseWriter, r *http.Request, s *store) (*result, error)

// serve finds the kind, runs one request and writes its outcome. A nil result means that f has
// written the answer itself.
func (h *handler) serve(f serveFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := h.store(r)
		var res *result
		if err == nil {
			res, err = f(w, r, s)
		}
		switch {
		case err != nil:
			writeError(w, err)
		case res != nil:
			writeJSON(w, res.code, shownTo(r, res.body))
		}
	}
}

func (h *handler) store(r *http.Request) (*store, error) {
	kind, found := h.kinds[r.PathValue("plural")]
	sub := r.PathValue("sub")
	if !found || sub != "" && (sub != "status" || !kind.HasStatus(nil)) {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	s := &store{kind: kind, v1: h.client.Resource(kind.V1GVR()), watches: &h.watches}
	if ns := r.PathValue("namespace"); ns != "" {
		s.v1 = h.client.Resource(kind.V1GVR()).Namespace(ns)
	}
	if sub != "" {
		s.sub = []string{sub}
	}
	return s, nil
}

func (h *handler) collection(w http.ResponseWriter, r *http.Request, s *store) (*result, error) {
	switch r.Method {
	case http.MethodGet:
		return s.listOrWatch(w, r)
	case http.MethodPost:
		return s.create(r)
	}
	return nil, apierrors.NewMethodNotSupported(s.resource(), strings.ToLower(r.Method))
}

func (h *handler) item(_ http.ResponseWriter, r *http.Request, s *store) (*result, error) {
	name := r.PathValue("name")
	switch r.Method {
	case http.MethodGet:
		return s.get(r.Context(), name)
	case http.MethodPut:
		return s.update(r, name)
	case http.MethodPatch:
		return s.patch(r, name)
	case http.MethodDelete:
		return s.delete(r, name)
	}
	return nil, apierrors.NewMethodNotSupported(s.resource(), strings.ToLower(r.Method))
}

func readObject(r *http.Request) (*unstructured.Unstructured, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(body); err != nil {
		return nil, apierrors.NewBadRequest("decode the object: " + err.Error())
	}
	return obj, nil
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError("limit is 3 MiB")
	}
	return body, nil
}

func writeJSON(w http.ResponseWriter, code int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(doc); err != nil {
		klog.V(2).InfoS("client went away", "err", err)
	}
}

// writeError answers with a Status. What kube-apiserver said of a v1 object is said of the v3 one.
func writeError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Message = strings.ReplaceAll(status.Message, resources.V1Group, resources.V3Group)
	if d := status.Details; d != nil && d.Group == resources.V1Group {
		renamed := *d
		renamed.Group = resources.V3Group
		status.Details = &renamed
	}
	code := int(status.Code)
	if code == 0 {
		code = http.StatusInternalServerError
	}
	writeJSON(w, code, &status)
}
