package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/pager"
)

// unlessKindIsGone is nil where err says that a kind is not served, since its CRD was deleted, and its objects with it. Else
// it is err: of a kind that is served in another version there may be objects, and an API server that was started a moment
// ago may not know a kind yet.
func (c *call) unlessKindIsGone(ctx context.Context, kind schema.GroupVersionKind, err error) error {
	if !apierrors.NotServed(err) || c.Discovery == nil {
		return err
	}
	versions, failure := c.servedVersions(ctx, kind.GroupKind())
	if failure == nil && len(versions) == 0 {
		versions, failure = c.versionsOfCRD(ctx, kind.GroupKind())
	}
	switch {
	case failure != nil:
		return errors.Join(err, failure)
	case len(versions) == 0:
		return nil
	case slices.Contains(versions, kind.Version):
		return err
	}
	return fmt.Errorf("%s of %s is served in version %s only: let its CRD serve %s, too, until this is done: %w", kind.Kind, kind.Group, strings.Join(versions, ", "), kind.Version, err)
}

// servedVersions are those in which the API server has a kind, by what it says now: what a RESTMapper has seen once stays.
func (c *call) servedVersions(ctx context.Context, kind schema.GroupKind) (versions []string, err error) {
	groups, err := c.Discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask which kinds are served: %w", err)
	}
	at := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == kind.Group })
	if at < 0 {
		return nil, nil
	}
	for _, v := range groups.Groups[at].Versions {
		list, err := c.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v.GroupVersion)
		switch {
		case apierrs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("ask which kinds are served in %s: %w", v.GroupVersion, err)
		case slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") }):
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}

// crdsAtOnce bounds the memory that a list of CRDs takes.
const crdsAtOnce = 20

// versionsOfCRD are those that the CRD of a kind serves, or will in a moment; none: there is no such CRD.
func (c *call) versionsOfCRD(ctx context.Context, kind schema.GroupKind) (versions []string, err error) {
	page := &unstructured.UnstructuredList{}
	page.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	err = pager.Each(ctx, c.Client, page, func() error {
		for _, item := range page.Items {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, crd); err != nil {
				return err
			}
			if crd.Spec.Group != kind.Group || crd.Spec.Names.Kind != kind.Kind {
				continue
			}
			for _, v := range crd.Spec.Versions {
				if v.Served {
					versions = append(versions, v.Name)
				}
			}
		}
		return nil
	}, client.Limit(crdsAtOnce))
	return versions, err
}
