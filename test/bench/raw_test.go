package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/bench/report"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// rawWorkers is how many creates are in flight.
const rawWorkers = 32

// rawCreates makes v3 objects as fast as a plain client can: first the mix, as a
// migration makes it, then as many handles, which are small.
func rawCreates(ctx context.Context, n int) ([]report.Run, error) {
	s, err := setup.New(ctx, setup.Options{Cluster: harness.Options{Own: true}, NoStandIn: true})
	if err != nil {
		return nil, err
	}
	return ended(s, func() ([]report.Run, error) {
		if err := errors.Join(known(ctx, s), settled(ctx, s)); err != nil {
			return nil, err
		}
		mix := fixture.Mix(n)
		tiers, err := convertAll(fixture.BuiltinTiers()) // policies need theirs
		if err != nil {
			return nil, err
		}
		if err := each(ctx, append(namespaces(mix), tiers...), rawWorkers, creating(s)); err != nil {
			return nil, err
		}
		objects, err := convertAll(mix)
		if err != nil {
			return nil, err
		}
		if err := admitted(ctx, s, objects); err != nil {
			return nil, err
		}
		more := handles(objects, n) // before a create fills in what it answers
		raw, err := timed(ctx, s, objects)
		if err != nil {
			return nil, err
		}
		small, err := timed(ctx, s, more)
		return []report.Run{{Contender: report.RawSmall, Figures: small}, {Contender: report.Raw, Figures: raw}}, err
	})
}

func convertAll(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	all, err := subjects(objects)
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(all))
	for i, s := range all {
		if out[i], err = s.convert(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// known waits until the client knows how all kinds are called: it asks for that once, and
// not while something is timed.
func known(ctx context.Context, s *setup.Setup) error {
	return harness.Await(ctx, "all kinds to be served", patience, func(context.Context) error {
		for _, kind := range s.Registry.Kinds() {
			if _, err := s.Client.RESTMapper().RESTMapping(kind.V3GVK().GroupKind(), resources.V3Version); err != nil {
				return err
			}
		}
		return nil
	})
}

// admitted waits until policies are. Calico's admission policies change them, for which an API server must have
// learnt the types of a kind: it does that some time after it serves them.
func admitted(ctx context.Context, s *setup.Setup, objects []*unstructured.Unstructured) error {
	seen := map[string]bool{}
	for _, obj := range objects {
		if _, policy, _ := unstructured.NestedString(obj.Object, "spec", "tier"); !policy || seen[obj.GetKind()] {
			continue
		}
		seen[obj.GetKind()] = true
		err := harness.Await(ctx, "a "+obj.GetKind()+" to be admitted", patience, func(ctx context.Context) error {
			return s.Client.Create(ctx, obj.DeepCopy(), client.DryRunAll)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// namespaces are those that the objects are in.
func namespaces(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range fixture.Namespaces(objects) {
		ns := &unstructured.Unstructured{}
		ns.SetAPIVersion("v1")
		ns.SetKind("Namespace")
		ns.SetName(name)
		out = append(out, ns)
	}
	return out
}

// handles are n more of the first IPAMHandle.
func handles(objects []*unstructured.Unstructured, n int) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	first := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "IPAMHandle" })
	for i := range n {
		one := objects[first].DeepCopy()
		one.SetName(fmt.Sprintf("raw-%d", i))
		out = append(out, one)
	}
	return out
}

func timed(ctx context.Context, s *setup.Setup, objects []*unstructured.Unstructured) (map[report.Metric]float64, error) {
	load, err := loadNow()
	if err != nil {
		return nil, err
	}
	home := filepath.Dir(s.Kubeconfig)
	began, cpu := time.Now(), cpuNow(home)
	if err := each(ctx, objects, rawWorkers, creating(s)); err != nil {
		return nil, err
	}
	took, spent := time.Since(began), cpuNow(home).Since(cpu)
	fmt.Println(cpuOfEach(spent, len(objects)))
	n := float64(len(objects))
	return map[report.Metric]float64{
		report.Total: took.Seconds(), report.Rate: n / took.Seconds(), report.Writes: 1,
		report.CPU: spent.Sum().Seconds() * 1000 / n, report.Load: load,
	}, nil
}

func creating(s *setup.Setup) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, obj *unstructured.Unstructured) error {
		return s.Client.Create(ctx, obj)
	}
}

// each calls do for every object, so many at a time.
func each(ctx context.Context, objects []*unstructured.Unstructured, workers int, do func(context.Context, *unstructured.Unstructured) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, obj := range objects {
		g.Go(func() error {
			if err := do(ctx, obj); err != nil {
				return fmt.Errorf("%s %s: %w", obj.GetKind(), client.ObjectKeyFromObject(obj), err)
			}
			return nil
		})
	}
	return g.Wait()
}
