package copier

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/pager"
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

// everyV1 are the v1 objects of a kind, whether they are migrated or not.
func everyV1(kind *resources.Kind) side {
	all := inV1(kind)
	all.selector, all.metaPage = labels.Everything(), anyPage
	return all
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
	err := pager.Each(ctx, patient{a}, list, do, &client.ListOptions{Limit: size, LabelSelector: s.selector})
	if _, listing := errors.AsType[*pager.Error](err); listing && s.crd != "" {
		return pager.UnlessAbsent(ctx, patient{a}, s.crd, err)
	}
	return err
}

// patient is the API server for reads. A request that failed on the way is sent again.
type patient struct{ *api }

func (p patient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return p.try(ctx, func() error { return p.client.Get(ctx, key, obj, opts...) })
}

func (p patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return p.try(ctx, func() error { return p.client.List(ctx, list, opts...) })
}

// listOne reads one object by a list of it alone: an account that may list need not be allowed to get.
func (a *api) listOne(ctx context.Context, list client.ObjectList, gvk schema.GroupVersionKind, key client.ObjectKey) error {
	list.GetObjectKind().SetGroupVersionKind(listKind(gvk))
	return pager.Whole(ctx, patient{a}, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
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
