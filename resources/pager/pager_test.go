package pager_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources/pager"
)

var (
	tiers  = schema.GroupResource{Group: "crd.projectcalico.org", Resource: "tiers"}
	crds   = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	noKind = &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: tiers.Group, Kind: "Tier"}}
	// unserved is what client-go makes of the answer to a path that the API server does not know.
	unserved = apierrs.NewGenericServerResponse(404, "get", tiers, "", "404 page not found", 0, true)
)

func expired(token string) error {
	err := apierrs.NewResourceExpired("the snapshot is gone")
	err.ErrStatus.Continue = token
	return err
}

// answers are those of an API server: to the requests for pages, by their token, and to the one for the CRD.
type answers struct {
	client.Reader
	pages map[string]any // error, or page
	crd   error
	asked []string
}

type page struct {
	names []string
	next  string
}

func (a *answers) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	a.asked = append(a.asked, fmt.Sprintf("%d%s", o.Limit, o.Continue))
	metas := list.(*metav1.PartialObjectMetadataList)
	switch p := a.pages[o.Continue].(type) {
	case error:
		return p
	case page:
		metas.Items = nil
		for _, name := range p.names {
			metas.Items = append(metas.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		metas.SetContinue(p.next)
	}
	return nil
}

func (a *answers) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return a.crd
}

func TestAListIsWholeOrAnError(t *testing.T) {
	const crd = "tiers.crd.projectcalico.org"
	first := page{[]string{"a", "b"}, "2"}
	gone := apierrs.NewNotFound(crds, crd)
	for name, c := range map[string]struct {
		why   string
		pages map[string]any
		crd   error // that the request for the CRD ends with
		seen  []string
		asked []string
		fails bool
	}{
		"two pages":                     {why: "each object once", pages: map[string]any{"": first, "2": page{[]string{"c"}, ""}}, seen: []string{"a", "b", "c"}, asked: []string{"2", "22"}},
		"none":                          {why: "an empty list is what says so", pages: map[string]any{"": page{}}, asked: []string{"2"}},
		"not served":                    {why: "its CRD is there: the API server has just started", pages: map[string]any{"": unserved}, asked: []string{"2"}, fails: true},
		"no match":                      {why: "its discovery is not filled", pages: map[string]any{"": noKind}, asked: []string{"2"}, fails: true},
		"second page not served":        {why: "another API server has answered it", pages: map[string]any{"": first, "2": unserved}, seen: []string{"a", "b"}, asked: []string{"2", "22"}, fails: true},
		"no CRD":                        {why: "the CRD says so itself", pages: map[string]any{"": unserved}, crd: gone, asked: []string{"2"}},
		"no CRD, no match":              {why: "the CRD says so itself", pages: map[string]any{"": noKind}, crd: gone, asked: []string{"2"}},
		"the CRD is not served, either": {why: "an API server that serves nothing yet says nothing of CRDs", pages: map[string]any{"": unserved}, crd: apierrs.NewGenericServerResponse(404, "get", crds, crd, "404 page not found", 0, true), asked: []string{"2"}, fails: true},
		"another CRD is not there":      {why: "the answer names none that was asked for", pages: map[string]any{"": unserved}, crd: apierrs.NewNotFound(crds, "pools"), asked: []string{"2"}, fails: true},
		"the CRD cannot be read":        {why: "nothing is known", pages: map[string]any{"": unserved}, crd: errors.New("connection refused"), asked: []string{"2"}, fails: true},
		"expired, goes on":              {why: "the API server lets the list go on behind b", pages: map[string]any{"": first, "2": expired("3"), "3": page{[]string{"c"}, ""}}, seen: []string{"a", "b", "c"}, asked: []string{"2", "22", "23"}},
		"expired for good":              {why: "what follows is not known", pages: map[string]any{"": first, "2": expired("")}, seen: []string{"a", "b"}, asked: []string{"2", "22"}, fails: true},
		"expired again and again":       {why: "the API server gives the token that it refuses", pages: map[string]any{"": first, "2": expired("2")}, seen: []string{"a", "b"}, asked: []string{"2", "22"}, fails: true},
		"second page lost":              {why: "half of a list is none", pages: map[string]any{"": first, "2": errors.New("connection reset")}, seen: []string{"a", "b"}, asked: []string{"2", "22"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{pages: c.pages, crd: c.crd}
			list := &metav1.PartialObjectMetadataList{}
			var seen []string
			err := pager.Each(t.Context(), a, list, func() error {
				for _, item := range list.Items {
					seen = append(seen, item.Name)
				}
				return nil
			}, client.Limit(2))
			err = pager.UnlessAbsent(t.Context(), a, crd, err)
			if diff := cmp.Diff([][]string{c.seen, c.asked}, [][]string{seen, a.asked}); diff != "" || (err != nil) != c.fails {
				t.Errorf("%s: error %v, want one: %t; seen and asked for (-want +got):\n%s", c.why, err, c.fails, diff)
			}
		})
	}
}

// An account may be allowed to list a CRD by its name, and not to get it.
func TestHasCRDByAList(t *testing.T) {
	forbidden := apierrs.NewForbidden(crds, "x", errors.New("no"))
	for name, c := range map[string]struct {
		why   string
		list  any
		there bool
		fails bool
	}{
		"there":     {why: "the list of this name has it", list: page{[]string{"x"}, ""}, there: true},
		"absent":    {why: "the list of this name is empty", list: page{}},
		"forbidden": {why: "nothing is known", list: forbidden, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			there, err := pager.HasCRD(t.Context(), &answers{crd: forbidden, pages: map[string]any{"": c.list}}, "x")
			if there != c.there || (err != nil) != c.fails {
				t.Errorf("there: %t, error %v; want %t, an error: %t: %s", there, err, c.there, c.fails, c.why)
			}
		})
	}
}

// What is done with a page is not the API server's word about the kind.
func TestAnErrorOfTheCallerStaysOne(t *testing.T) {
	a := &answers{pages: map[string]any{"": page{[]string{"a"}, "2"}}}
	own := errors.New("enough")
	err := pager.Each(t.Context(), a, &metav1.PartialObjectMetadataList{}, func() error { return own })
	if _, listing := errors.AsType[*pager.Error](err); listing || !errors.Is(err, own) || len(a.asked) != 1 {
		t.Errorf("got %v after %d requests, want the caller's own error after one", err, len(a.asked))
	}
	if err := pager.Whole(t.Context(), a, &metav1.PartialObjectMetadataList{}); err == nil {
		t.Error("a part of a list was taken for the whole")
	}
}
