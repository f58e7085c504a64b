package datastoremigration

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// unserved answers every request about one kind as an API server does that does not serve it.
func unserved(c client.WithWatch, kind string, answer error) client.WithWatch {
	is := func(obj runtime.Object) bool {
		asked := obj.GetObjectKind().GroupVersionKind().Kind
		return asked == kind || asked == kind+"List" || fmt.Sprintf("%T", obj) == "*v1."+kind+"List"
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if is(obj) {
				return answer
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if is(list) {
				return answer
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// notServed is what client-go makes of the answer to a path that an API server does not know (yet).
func notServed() error {
	return apierrs.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: "any"}, "", "404 page not found", 0, true)
}

// An API server that does not serve a kind has not said that there are no objects of it: its CRD says so.
func TestWhatIsNotServedIsNotAbsent(t *testing.T) {
	lock := resources.Default().Lock()
	questions := map[string]struct {
		why  string
		kind string
		crds []string
		ask  func(e *effects) error
	}{
		"unlock v1": {"v1 would stay closed, and nobody would know", lock.V1Kind(), []string{lock.V1CRDName()}, func(e *effects) error {
			_, err := e.v1Lock.v1Info(t.Context())
			return err
		}},
		"v3 in use": {"a migrated cluster would be migrated again", lock.V1Kind(), []string{lock.V1CRDName(), lock.V3CRDName()}, func(e *effects) error {
			_, err := e.datastore(t.Context())
			return err
		}},
		"other migrations": {"one at work would be taken for gone, and what it holds released", "DatastoreMigration", []string{migrationv1.CRDName}, func(e *effects) error {
			_, err := e.migrations(t.Context())
			return err
		}},
		"objects that would stay": {"they would stay behind unseen", "IPPool", []string{poolCRD}, func(e *effects) error {
			_, err := e.preflight.count(t.Context(), v1Pool(), poolCRD, labels.Nothing())
			return err
		}},
	}
	for name, q := range questions {
		for what, answer := range map[string]error{"404": notServed(), "no match": &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: q.kind}}} {
			for _, installed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, CRD: %t", name, what, installed), func(t *testing.T) {
					world := newFake()
					for _, crd := range q.crds {
						if installed {
							world = world.WithObjects(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd}})
						}
					}
					e := newEffects(unserved(world.Build(), q.kind, answer), Settings{Registry: resources.Default(), Discovery: nothingServed()})
					if err := q.ask(e); (err != nil) != installed {
						t.Errorf("error %v, want one: %t: %s", err, installed, q.why)
					}
				})
			}
		}
	}
}

// Discovery that is not filled does not say that there are no other kinds.
func TestDiscoveryThatIsNotFilled(t *testing.T) {
	empty := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for name, c := range map[string]struct {
		why       string
		discovery *discoveryfake.FakeDiscovery
		crd       bool
		fails     bool
	}{
		"filled":     {why: "it tells of what has a CRD", discovery: nothingServed(), crd: true},
		"not filled": {why: "there is a CRD that it does not tell of", discovery: empty, crd: true, fails: true},
		"no v1":      {why: "there is nothing to tell of", discovery: empty},
	} {
		t.Run(name, func(t *testing.T) {
			world := newFake()
			if c.crd {
				world = world.WithObjects(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD}})
			}
			e := newEffects(world.Build(), Settings{Registry: resources.Default(), Discovery: c.discovery})
			if foreign, err := e.foreignV1(t.Context()); (err != nil) != c.fails || len(foreign) > 0 {
				t.Errorf("%v, error %v; want one: %t: %s", foreign, err, c.fails, c.why)
			}
		})
	}
}
