package fakeapiserver

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/phasegate/phasegate/test/support/fakeapiserver/v1form"
)

// filter selects on the v3 view: v1 hides most labels, and the names of some policies differ.
type filter struct {
	labels labels.Selector
	fields fields.Selector
}

// takeFilter moves the selectors out of the options, so that the rest can be passed on as it is:
// limit, continue, resourceVersion and its match, bookmarks, timeout.
func takeFilter(opts *metav1.ListOptions) (filter, error) {
	byLabel, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return filter{}, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return filter{}, apierrors.NewBadRequest(err.Error())
	}
	opts.LabelSelector, opts.FieldSelector = "", ""
	return filter{labels: byLabel, fields: byField}, nil
}

func (f filter) matches(v3 *unstructured.Unstructured) bool {
	return f.labels.Matches(labels.Set(v3.GetLabels())) &&
		f.fields.Matches(fields.Set{"metadata.name": v3.GetName(), "metadata.namespace": v3.GetNamespace()})
}

func (s *store) listOrWatch(w http.ResponseWriter, r *http.Request) (*result, error) {
	query := r.URL.Query()
	var opts metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &opts, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	f, err := takeFilter(&opts)
	if err != nil {
		return nil, err
	}
	if opts.Watch {
		return nil, s.watch(w, r, opts, f)
	}
	stored, err := s.v1.List(r.Context(), opts)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: stored.Object, Items: []unstructured.Unstructured{}}
	list.SetAPIVersion(groupVersion)
	list.SetKind(s.kind.Name() + "List")
	for i := range stored.Items {
		view, err := v1form.ToV3(s.kind, &stored.Items[i])
		if err != nil {
			// Calico's server does the same: one bad object does not hide the others.
			klog.ErrorS(err, "left out of the list", "kind", s.kind.Name(), "name", stored.Items[i].GetName())
			continue
		}
		if f.matches(view) {
			list.Items = append(list.Items, *view)
		}
	}
	return &result{http.StatusOK, list}, nil
}

func (s *store) watch(w http.ResponseWriter, r *http.Request, opts metav1.ListOptions, f filter) error {
	ctx, cancel := s.watches.begin(r.Context(), s.kind.Name())
	defer cancel()
	events, err := s.v1.Watch(ctx, opts)
	if err != nil {
		return err
	}
	defer events.Stop()

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush() // the client waits for the headers before it waits for events
	enc := json.NewEncoder(w)
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			obj, wanted := s.viewEvent(event, f)
			if !wanted {
				continue
			}
			if full, ok := obj.(*unstructured.Unstructured); ok && wantsMetadata(r) {
				obj = metadataOf(full)
			}
			if err := enc.Encode(metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Object: obj}}); err != nil {
				return nil // the client went away; headers are out, so there is no one to tell
			}
			_ = flush()
		}
	}
}

// viewEvent shows an event's object as v3. Errors pass as they are, and so do bookmarks, which are
// objects in name only.
func (s *store) viewEvent(event watch.Event, f filter) (runtime.Object, bool) {
	stored, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		return event.Object, true
	}
	if event.Type == watch.Bookmark {
		stored.SetGroupVersionKind(s.kind.V3GVK())
		return stored, true
	}
	view, err := v1form.ToV3(s.kind, stored)
	if err != nil {
		klog.ErrorS(err, "left out of the watch", "kind", s.kind.Name(), "name", stored.GetName())
		return nil, false
	}
	return view, f.matches(view)
}
