package crdgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/test/support/harness"
)

const group = "crdgate.phasegate.dev"

func widgetCRD(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}

func widget(name string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	w.SetName(name)
	return w
}

// bench is a gate for widgets on a real API server, around a controller that
// notes which widgets it has seen.
type bench struct {
	t *testing.T
	c client.Client

	mu sync.Mutex
	// alive counts the copies at this moment, most at the worst, starts in all.
	alive, most, starts int
	// seen are the UIDs of the widgets that were reconciled.
	seen []types.UID
	// fail makes the next copies return by themselves, once each.
	fail int
}

func (b *bench) run(c *harness.Cluster) func(context.Context, *crdgate.Missing) error {
	build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
		widgets := source.Kind[client.Object](own.GetCache(), widget(""), &handler.EnqueueRequestForObject{})
		see := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			w := widget("")
			if err := own.GetCache().Get(ctx, r.NamespacedName, w); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen = append(b.seen, w.GetUID())
			return reconcile.Result{}, nil
		})
		return controller.Options{Reconciler: see}, []source.Source{widgets}, nil
	}
	return func(ctx context.Context, missing *crdgate.Missing) error {
		if missing != nil {
			<-ctx.Done()
			return nil
		}
		defer b.enter()()
		if b.failing() {
			return errors.New("broken")
		}
		return crdgate.RunController(ctx, c.Config, "widgets", build)
	}
}

func (b *bench) enter() (exit func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starts++
	b.alive++
	b.most = max(b.most, b.alive)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.alive--
	}
}

func (b *bench) failing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail--
	return b.fail >= 0
}

func (b *bench) counts() (alive, most, starts int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alive, b.most, b.starts
}

// establish creates a CRD, as soon as one of the same name is gone, and waits
// until it is established.
func (b *bench) establish(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	b.t.Helper()
	harness.Eventually(b.t, "the CRD to be created", func() error { return b.c.Create(b.t.Context(), crd) })
	harness.Eventually(b.t, "the CRD to be established", func() error {
		if err := b.c.Get(b.t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", crd.Status.Conditions)
	})
	return crd
}

// remove asks for the deletion of a CRD and does not wait for it.
func (b *bench) remove(crd *apiextensionsv1.CustomResourceDefinition) {
	b.t.Helper()
	if err := b.c.Delete(b.t.Context(), crd, client.Preconditions{UID: &crd.UID}); err != nil {
		b.t.Fatal(err)
	}
}

// seesANewWidget proves that a controller is at work on the CRD as it is now.
func (b *bench) seesANewWidget() {
	b.t.Helper()
	w := widget("w")
	harness.Eventually(b.t, "a widget to be created", func() error {
		err := b.c.Create(b.t.Context(), w)
		if apierrors.IsAlreadyExists(err) {
			return harness.Permanent(err)
		}
		return err
	})
	harness.Eventually(b.t, "the widget to be reconciled", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Contains(b.seen, w.GetUID()) {
			return fmt.Errorf("%d others were, in %d starts", len(b.seen), b.starts)
		}
		return nil
	})
}

func (b *bench) noneIsAlive() {
	b.t.Helper()
	harness.Eventually(b.t, "the controller to stop", func() error {
		if alive, _, _ := b.counts(); alive > 0 {
			return fmt.Errorf("%d alive", alive)
		}
		return nil
	})
}

func TestGateOnAPIServer(t *testing.T) {
	c := harness.ForTest(t, harness.Options{Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	cases := map[string]struct {
		why    string
		script func(b *bench)
		// byKind leaves the gate to find the CRD by its kind.
		byKind bool
		fail   int
		starts int
	}{
		"starts, stops and starts again": {
			why: "the CRD comes, goes and comes back",
			script: func(b *bench) {
				for range 2 {
					crd := b.establish(widgetCRD("widgets", "Widget"))
					b.seesANewWidget()
					b.remove(crd)
					b.noneIsAlive()
				}
			},
			starts: 2,
		},
		"ignores other CRDs": {
			why: "a CRD of the same group is none of its business, before, during and after",
			script: func(b *bench) {
				other := b.establish(widgetCRD("gadgets", "Gadget"))
				crd := b.establish(widgetCRD("widgets", "Widget"))
				b.seesANewWidget()
				b.remove(other)
				b.remove(crd)
				b.noneIsAlive()
			},
			starts: 1,
		},
		"found by kind": {
			why: "whoever wrote a machine file does not say the plural",
			script: func(b *bench) {
				other := b.establish(widgetCRD("gadgets", "Gadget"))
				crd := b.establish(widgetCRD("widgets", "Widget"))
				b.seesANewWidget()
				b.remove(other)
				b.remove(crd)
				b.noneIsAlive()
			},
			byKind: true,
			starts: 1,
		},
		"fast delete and recreate": {
			why: "a new CRD gets a new controller, and never two at once",
			script: func(b *bench) {
				for range 5 {
					crd := b.establish(widgetCRD("widgets", "Widget"))
					b.seesANewWidget()
					b.remove(crd)
				}
				b.noneIsAlive()
			},
			starts: 5,
		},
		"returns by itself": {
			why: "nothing but the gate would start it again",
			script: func(b *bench) {
				crd := b.establish(widgetCRD("widgets", "Widget"))
				b.seesANewWidget()
				b.remove(crd)
				b.noneIsAlive()
			},
			fail:   1,
			starts: 2,
		},
	}
	// One request, so that the connection that all share is there from the start.
	if err := c.Client.List(t.Context(), &apiextensionsv1.CustomResourceDefinitionList{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			b := &bench{t: t, c: c.Client, fail: tc.fail}
			gate := &crdgate.Gate{CRDName: "widgets." + group, Config: c.Config, Run: b.run(c)}
			if tc.byKind {
				gate.CRDName, gate.Kind = "", schema.GroupKind{Group: group, Kind: "Widget"}
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- gate.Start(ctx) }()

			tc.script(b)
			if _, most, starts := b.counts(); most != 1 || starts != tc.starts {
				t.Errorf("%s: %d starts with at most %d at once, want %d and 1", tc.why, starts, most, tc.starts)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("gate: %v", err)
			}
			goleak.VerifyNone(t, before)
		})
	}
}
