package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apiserrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// inOrder is EachV1, with the oldest object first where that matters, of which it keeps all then. With
// UseSnapshot no kind is listed that has none.
func (c *Copier) inOrder(ctx context.Context, kind *resources.Kind, do func(*unstructured.Unstructured) error) error {
	if v1, frozen := c.snapshotOf(kind); frozen && len(v1) == 0 {
		return nil
	}
	if !kind.InOrder() {
		return c.EachV1(ctx, kind, do)
	}
	var all []*unstructured.Unstructured
	err := c.EachV1(ctx, kind, func(v1 *unstructured.Unstructured) error {
		all = append(all, v1)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(resources.Created(a).Compare(resources.Created(b).Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, v1 := range all {
		if err := do(v1); err != nil {
			return err
		}
	}
	return nil
}

// EachV1 streams the v1 objects of a kind that are migrated. A kind whose CRD is absent has none.
func (c *Copier) EachV1(ctx context.Context, kind *resources.Kind, do func(*unstructured.Unstructured) error) error {
	return c.eachV1Of(ctx, kind, kind.Selector(), do)
}

func (c *Copier) eachV1Of(ctx context.Context, kind *resources.Kind, selector labels.Selector, do func(*unstructured.Unstructured) error) error {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	return c.pages(ctx, list, kind.V1CRDName(), kind.PageSize(), selector, func() error {
		return eachOf(list.Items, do)
	})
}

// eachV3 streams the v3 objects of a kind, page by page.
func (c *Copier) eachV3(ctx context.Context, kind *resources.Kind, do func(*unstructured.Unstructured) error) error {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(kind.V3GVK()))
	return c.pages(ctx, list, kind.V3CRDName(), kind.PageSize(), labels.Everything(), func() error {
		return eachOf(list.Items, do)
	})
}

// eachV3Metadata streams the metadata of the v3 objects of a kind.
func (c *Copier) eachV3Metadata(ctx context.Context, kind *resources.Kind, do func(*metav1.PartialObjectMetadata) error) error {
	return c.eachMetadata(ctx, kind.V3GVK(), kind.V3CRDName(), metadataPage, labels.Everything(), do)
}

// metadataPage is how many objects a page of metadata has. They are small, whatever the kind.
const metadataPage = 2000

// eachMetadata streams the metadata of the objects of a kind: a fifth of the bytes.
func (c *Copier) eachMetadata(ctx context.Context, gvk schema.GroupVersionKind, crdName string, size int64, selector labels.Selector, do func(*metav1.PartialObjectMetadata) error) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(gvk))
	return c.pages(ctx, list, crdName, size, selector, func() error {
		return eachOf(list.Items, do)
	})
}

// readV1 reads one v1 object, by a list of it alone: who copies may list v1, and need not be allowed to get.
// It returns nil for one that is gone.
func (c *Copier) readV1(ctx context.Context, kind *resources.Kind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	err := c.try(ctx, func() error {
		return c.c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
	})
	if err != nil {
		return nil, c.unlessAbsent(ctx, kind.V1CRDName(), fmt.Errorf("read %s %s: %w", kind.V1GVK().GroupKind(), key, err))
	}
	for i := range list.Items {
		if obj := &list.Items[i]; kind.Selector().Matches(labels.Set(obj.GetLabels())) {
			return obj, nil
		}
	}
	return nil, nil
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
func (c *Copier) pages(ctx context.Context, list client.ObjectList, crdName string, size int64, selector labels.Selector, do func() error) error {
	gvk := list.GetObjectKind().GroupVersionKind()
	var own error // do's, which may not be taken for that of a list
	err := c.pagesServed(ctx, list, size, selector, func() error {
		own = do()
		return own
	})
	if err == nil || own != nil {
		return own
	}
	return c.unlessAbsent(ctx, crdName, fmt.Errorf("list %s in %s: %w", gvk.Kind, gvk.GroupVersion(), err))
}

// pagesServed is pages for a kind that must be there.
func (c *Copier) pagesServed(ctx context.Context, list client.ObjectList, size int64, selector labels.Selector, do func() error) error {
	opts := &client.ListOptions{Limit: size, LabelSelector: selector}
	for {
		err := c.try(ctx, func() error { return c.c.List(ctx, list, opts) })
		if token := continueAfterExpiry(err); token != "" && token != opts.Continue {
			opts.Continue = token
			continue
		}
		if err != nil {
			return err
		}
		if err := do(); err != nil {
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

// unlessAbsent takes a "not found" for emptiness only if the CRD itself is not there.
func (c *Copier) unlessAbsent(ctx context.Context, crdName string, listErr error) error {
	if apierrors.Classify(listErr) != apierrors.NotFound {
		return listErr
	}
	crd, err := c.crd(ctx, crdName)
	if err != nil {
		return errors.Join(listErr, err)
	}
	if crd != nil {
		return listErr // it exists but is not served (yet)
	}
	return nil
}

// WaiveLastCopies is what a person waives who wants copies deleted that may be the last of their objects.
const WaiveLastCopies = "last-copies"

// standingV1 reads the metadata of the v1 CRD of a kind of which objects seem to be gone. The error says that
// the CRD went, or goes, and takes them along: that is nobody's wish about the objects, whose copies are the last.
func (c *Copier) standingV1(ctx context.Context, kind *resources.Kind) (*metav1.PartialObjectMetadata, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	err := c.try(ctx, func() error { return c.c.Get(ctx, client.ObjectKey{Name: kind.V1CRDName()}, crd) })
	switch {
	case apierrors.Classify(err) == apierrors.NotFound:
		return nil, c.lastCopies(kind, "is gone")
	case err != nil:
		return nil, fmt.Errorf("read crd %s: %w", kind.V1CRDName(), err)
	case crd.DeletionTimestamp != nil:
		return nil, c.lastCopies(kind, "is being deleted")
	}
	return crd, nil
}

// outlives is an error about a copy that is older than the v1 CRD: its object went with an earlier one.
func (c *Copier) outlives(kind *resources.Kind, seen, crd *metav1.PartialObjectMetadata) error {
	if seen.CreationTimestamp.Before(&crd.CreationTimestamp) {
		return c.lastCopies(kind, "is newer than the copies: it was deleted with its objects and applied again")
	}
	return nil
}

// lastCopies says what has become of a v1 CRD, and what is to be done about it.
func (c *Copier) lastCopies(kind *resources.Kind, what string) error {
	return fmt.Errorf("crd %s %s, and the copies in v3 may be the last of its objects: they stay; save them (kubectl get %s.%s.%s -A -o yaml), "+
		"then apply the CRD with its objects again; to have them deleted, abort the migration and set the annotation %s on it",
		kind.V1CRDName(), what, kind.V3Plural(), kind.V3GVK().Version, resources.V3Group, migrationv1.WaiverAnnotation(WaiveLastCopies, c.owner.UID))
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	gvk.Kind += "List"
	return gvk
}
