package copier

import (
	"context"
	"errors"
	"fmt"

	apiserrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

const (
	// metadataPage is how many objects a page of metadata has. They are small, whatever the kind.
	metadataPage = 2000
	// anyPage is the same for kinds that the registry does not know.
	anyPage = 500
)

// side is one side of a kind: its objects in v1, or in v3.
type side struct {
	gvk      schema.GroupVersionKind
	crd      string // without it the kind has no objects; "" for a kind that must be served
	selector labels.Selector
	page     int64 // how many whole objects are listed at a time
	metaPage int64 // the same of metadata
}

// inV1 are the v1 objects of a kind that are migrated.
func inV1(kind *resources.Kind) side {
	return side{kind.V1GVK(), kind.V1CRDName(), kind.Selector(), kind.PageSize(), metadataPage}
}

func inV3(kind *resources.Kind) side {
	return side{kind.V3GVK(), kind.V3CRDName(), labels.Everything(), kind.PageSize(), metadataPage}
}

// served is a kind of any group, which must be served.
func served(gvk schema.GroupVersionKind, metaPage int64) side {
	return side{gvk: gvk, selector: labels.Everything(), metaPage: metaPage}
}

// eachObject streams whole objects, page by page.
func (a *api) eachObject(ctx context.Context, s side, do func(*unstructured.Unstructured) error) error {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(s.gvk))
	return a.pages(ctx, list, s, s.page, func() error { return eachOf(list.Items, do) })
}

// eachMeta streams the metadata: a fifth of the bytes.
func (a *api) eachMeta(ctx context.Context, s side, do func(*Meta) error) error {
	return a.eachMetaPage(ctx, s, func(page *metav1.PartialObjectMetadataList) error {
		return eachOf(page.Items, func(obj *Meta) error {
			obj.SetGroupVersionKind(s.gvk) // an item of a list says that it is metadata only
			return do(obj)
		})
	})
}

func (a *api) eachMetaPage(ctx context.Context, s side, do func(*metav1.PartialObjectMetadataList) error) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(s.gvk))
	return a.pages(ctx, list, s, s.metaPage, func() error { return do(list) })
}

func eachOf[T any](items []T, do func(*T) error) error {
	for i := range items {
		if err := do(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

// pages lists into list again and again and calls do after each page. A kind whose CRD does not exist
// has no pages; every other error is returned: nothing that went wrong may look like an empty kind.
func (a *api) pages(ctx context.Context, list client.ObjectList, s side, size int64, do func() error) error {
	opts := &client.ListOptions{Limit: size, LabelSelector: s.selector}
	for {
		err := a.try(ctx, func() error { return a.client.List(ctx, list, opts) })
		if token := continueAfterExpiry(err); token != "" && token != opts.Continue {
			opts.Continue = token
			continue
		}
		if err != nil && s.crd != "" {
			err = fmt.Errorf("list %s in %s: %w", listKind(s.gvk).Kind, s.gvk.GroupVersion(), err)
			return a.unlessAbsent(ctx, s.crd, err)
		}
		if err == nil {
			err = do()
		}
		if err != nil {
			return err
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// continueAfterExpiry is the token with which the server lets a list go on whose snapshot was compacted
// away: behind the last key, on what is there now.
func continueAfterExpiry(err error) string {
	var status apiserrors.APIStatus
	if apiserrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// listOne reads one object by a list of it alone: an account that may list need not be allowed to get.
func (a *api) listOne(ctx context.Context, list client.ObjectList, gvk schema.GroupVersionKind, key client.ObjectKey) error {
	list.GetObjectKind().SetGroupVersionKind(listKind(gvk))
	return a.try(ctx, func() error {
		return a.client.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
	})
}

// unlessAbsent takes a "not found" for emptiness only if the CRD itself is not there.
func (a *api) unlessAbsent(ctx context.Context, crdName string, listErr error) error {
	if apierrors.Classify(listErr) != apierrors.NotFound {
		return listErr
	}
	crd, err := a.crd(ctx, crdName)
	if err != nil {
		return errors.Join(listErr, err)
	}
	if crd != nil {
		return listErr // it exists but is not served (yet)
	}
	return nil
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	gvk.Kind += "List"
	return gvk
}

// contentList is a list of custom resources that is decoded in one go. The one that it wraps parses the
// list, and then each item, several times over, to find kinds that every item of ours states itself.
type contentList struct{ unstructured.UnstructuredList }

// UnmarshalJSON replaces what was in the list.
func (l *contentList) UnmarshalJSON(data []byte) error {
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	l.UnstructuredList = unstructured.UnstructuredList{}
	l.SetUnstructuredContent(content)
	return nil
}

// creation is an object to create, and then the answer, which is decoded in one go like a list.
type creation struct{ unstructured.Unstructured }

// UnmarshalJSON replaces the object.
func (c *creation) UnmarshalJSON(data []byte) error {
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return err
	}
	c.SetUnstructuredContent(content)
	return nil
}
