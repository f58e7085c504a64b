package main

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// pages answers one page after the other, then an error if there is one.
type pages struct {
	client.Reader
	t    *testing.T
	crd  bool // of the states is there
	all  [][]string
	err  error
	seen []string
}

func (p *pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	p.seen = append(p.seen, o.LabelSelector.String()+" "+o.Continue)
	if len(p.all) == 0 || o.Limit == 0 {
		return p.err
	}
	page, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		p.t.Fatalf("a list of %T", list)
	}
	page.Items = nil
	page.SetContinue("")
	for _, name := range p.all[0] {
		page.Items = append(page.Items, unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"object": map[string]any{"name": name}}}})
	}
	if p.all = p.all[1:]; len(p.all) > 0 || p.err != nil {
		page.SetContinue("more")
	}
	return nil
}

func (p *pages) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if !p.crd {
		return apierrs.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, key.Name)
	}
	return nil
}

func TestStatesArePaged(t *testing.T) {
	away := errors.New("no answer")
	const label = "phasegate.dev/machine=door "
	noKind := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MachineState"}}
	for name, c := range map[string]struct {
		why        string
		crd        bool
		all        [][]string
		err        error
		names, ask []string
		want       error
	}{
		"two pages":              {"each object once", true, [][]string{{"a", "b"}, {"c"}}, nil, []string{"a", "b", "c"}, []string{label, label + "more"}, nil},
		"second lost":            {"not all were seen, and that is said", true, [][]string{{"a"}}, away, []string{"a"}, []string{label, label + "more"}, away},
		"no kind":                {"a cluster without MachineState has none", false, nil, noKind, nil, []string{label}, nil},
		"not served":             {"the API server has just started: a new machine file would be taken for one that strands nobody", true, nil, noKind, nil, []string{label}, noKind},
		"second page not served": {"an API server that has just started answers it", true, [][]string{{"a"}}, noKind, []string{"a"}, []string{label, label + "more"}, noKind},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pages{t: t, crd: c.crd, all: c.all, err: c.err}
			var names []string
			err := states(p)(t.Context(), "door", func(s *v1alpha1.MachineState) { names = append(names, s.Spec.Object.Name) })
			if d := cmp.Diff([]any{c.names, c.ask}, []any{names, p.seen}); d != "" || !errors.Is(err, c.want) {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, d)
			}
		})
	}
}
