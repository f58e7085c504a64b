package runner

import (
	"context"
	"errors"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// answering answers every GET the same way.
type answering struct {
	client.Client
	uid string
	err error
	// listed is the UID of what a list has.
	listed string
}

func (a answering) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if a.listed != "" {
		item := unstructured.Unstructured{}
		item.SetName("to-v3")
		item.SetUID(types.UID(a.listed))
		into.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{item}
	}
	return nil
}

func (a answering) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetUID(types.UID(a.uid))
	return a.err
}

// What is held is released only in the name of an object of which the API server says that
// it is not there.
func TestWhoIsGone(t *testing.T) {
	resource := schema.GroupResource{Group: "migration.projectcalico.org", Resource: "datastoremigrations"}
	notServed := apierrs.NewGenericServerResponse(404, "get", resource, "to-v3", "404 page not found", 0, true)
	nobodys := &apierrs.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}}
	noMatch := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: resource.Group, Kind: "DatastoreMigration"}}
	cases := map[string]struct {
		why       string
		answer    answering
		installed func(context.Context) (bool, error)
		exists    bool
		fails     bool
	}{
		"there":                       {why: "it is driven", answer: answering{uid: "u"}, exists: true},
		"another of its name":         {why: "it was created anew", answer: answering{uid: "other"}},
		"not found":                   {why: "the API server serves the kind, and has no such object", answer: answering{err: apierrs.NewNotFound(resource, "to-v3")}},
		"not found, but listed":       {why: "two answers that differ say nothing", answer: answering{err: apierrs.NewNotFound(resource, "to-v3"), listed: "u"}, exists: true},
		"not found, by whom":          {why: "it is not the API server that says so: it would name the object", answer: answering{err: nobodys}, fails: true},
		"no answer":                   {why: "nobody knows", answer: answering{err: apierrs.NewInternalError(errors.New("no quorum"))}, fails: true},
		"not served, with a CRD":      {why: "the API server has not read its CRDs yet", answer: answering{err: notServed}, installed: func(context.Context) (bool, error) { return true, nil }, fails: true},
		"not served, nobody can tell": {why: "the CRDs cannot be listed", answer: answering{err: notServed}, installed: func(context.Context) (bool, error) { return false, errors.New("forbidden") }, fails: true},
		"not served, without a CRD":   {why: "the CRD was deleted, and its objects with it", answer: answering{err: notServed}, installed: func(context.Context) (bool, error) { return false, nil }},
		"not known, without a CRD":    {why: "discovery says the same", answer: answering{err: noMatch}, installed: func(context.Context) (bool, error) { return false, nil }},
		"not known, not asked":        {why: "discovery alone is not believed", answer: answering{err: noMatch}, fails: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler[*migrationv1.DatastoreMigration]{Client: c.answer, Installed: c.installed, Program: &Program[*migrationv1.DatastoreMigration]{New: func() *migrationv1.DatastoreMigration { return &migrationv1.DatastoreMigration{} }}}
			state := &v1alpha1.MachineState{}
			state.Spec.Object.Name, state.Spec.Object.UID = "to-v3", "u"
			exists, err := r.exists(t.Context(), state)
			if exists != c.exists || (err != nil) != c.fails {
				t.Errorf("%s: exists %t, %v", c.why, exists, err)
			}
		})
	}
}
