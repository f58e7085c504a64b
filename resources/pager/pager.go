// Package pager lists objects: all that there are, or an error. It is the one place that goes from page to page, and that
// concludes that a cluster does not have a kind.
//
// An API server answers 404 for a kind that it does not serve yet: after its own start, or after that of a CRD, and so may one
// of several while the others serve it. So no answer to a list says that there are no objects but an empty list. That a
// kind does not exist is said by its CRD alone.
//
// It must not know what is listed, nor for whom.
package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiserrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources/apierrors"
)

// Lister lists, as a client.Reader does.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// Error is that of a request for a list. What do has answered is none.
type Error struct {
	What string // of which kind
	Err  error
}

func (e *Error) Error() string { return "list " + e.What + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Each lists into list, as many objects at a time as a client.Limit among the options says, and calls do after each page. Without
// an error do has seen every object that was there all the while, each once. Where the API server has
// forgotten what the first page was of (410), the list goes on behind the last name, on what is there now; where that cannot be, it
// is an error as every other answer, on whatever page. do may end the list: list.SetContinue("").
func Each(ctx context.Context, c Lister, list client.ObjectList, do func() error, opts ...client.ListOption) error {
	what, token := nameOf(list), ""
	for {
		err := c.List(ctx, list, append(slices.Clip(opts), client.Continue(token))...)
		if next := afterExpiry(err); next != "" && next != token {
			token = next
			continue
		}
		if err != nil {
			return &Error{What: what, Err: err}
		}
		if err := do(); err != nil {
			return err
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// Whole is Each for a list that fits into one page.
func Whole(ctx context.Context, c Lister, list client.ObjectList, opts ...client.ListOption) error {
	return Each(ctx, c, list, func() error {
		if list.GetContinue() != "" {
			return fmt.Errorf("list %s: the API server answers a part only, though nothing has limited it", nameOf(list))
		}
		return nil
	}, opts...)
}

func nameOf(list client.ObjectList) string {
	gvk := list.GetObjectKind().GroupVersionKind()
	if gvk.Kind == "" {
		return strings.TrimSuffix(fmt.Sprintf("%T", list), "List")
	}
	return strings.TrimSuffix(gvk.Kind, "List") + " in " + gvk.GroupVersion().String()
}

// afterExpiry is the token with which the server lets a list go on whose snapshot was compacted away.
func afterExpiry(err error) string {
	var status apiserrors.APIStatus
	if apiserrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// UnlessAbsent is nil where a request for objects of a kind has failed because the cluster does not have the kind: the API server, asked
// for the CRD of this name, says that there is none. Else it is the error.
func UnlessAbsent(ctx context.Context, c client.Reader, crd string, err error) error {
	if apierrors.Classify(err) != apierrors.NotFound {
		return err
	}
	there, asking := HasCRD(ctx, c, crd)
	if there || asking != nil {
		return errors.Join(err, asking) // it exists but is not served, or not yet
	}
	return nil
}

// HasCRD asks for a CRD by its name. An account that may not get it may list it by its name.
func HasCRD(ctx context.Context, c client.Reader, name string) (bool, error) {
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(gvk)
	err := c.Get(ctx, client.ObjectKey{Name: name}, crd)
	switch {
	case err == nil:
		return true, nil
	case IsAbsent(err, name):
		return false, nil
	case apiserrors.IsForbidden(err):
		list := &metav1.PartialObjectMetadataList{}
		gvk.Kind += "List"
		list.SetGroupVersionKind(gvk)
		if listing := Whole(ctx, c, list, client.MatchingFields{metav1.ObjectNameField: name}); listing == nil {
			return len(list.Items) > 0, nil
		}
	}
	return false, fmt.Errorf("read CRD %s: %w", name, err)
}

// IsAbsent tells that the API server serves a kind, and says that it has no object of this name.
func IsAbsent(err error, name string) bool {
	details := apierrors.Details(err)
	return apierrors.ObjectNotFound(err) && details != nil && details.Name == name
}
