package datastoremigration

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Inspector asks for people what a migration would find, with the migration's own code and the
// rights of whoever asks. It changes nothing, and may be asked any number of times.
type Inspector struct {
	s       *effects
	machine *fsm.Machine
	dm      *migration
}

// Look makes an Inspector for a migration; an empty one stands for a migration that is not there
// yet. Of the settings, Discovery and Config are filled in.
func Look(cfg *rest.Config, settings Settings, machine *fsm.Machine, dm *migrationv1.DatastoreMigration) (*Inspector, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // many small questions; the API server has its own limits
	api, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the discovery client: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	settings.Discovery, settings.Config, settings.Elsewhere = api, cfg, true
	return &Inspector{newEffects(c, settings), machine, dm}, nil
}

// Checks are the answers that the first step of the migration would get.
func (l *Inspector) Checks(ctx context.Context) []check.Answer {
	return check.Ask(ctx, append(l.s.preflight.checks(l.machine, l.dm), check.KubernetesVersion(l.s.discovery)))
}

// Plan reads, converts and validates every object of v1. Where v3's storage can be reached, it also
// asks the API server by dry runs; else Unasked says why not.
func (l *Inspector) Plan(ctx context.Context) (copier.Plan, error) {
	version, blocked, err := l.s.door.v3Version(ctx, l.machine, l.dm)
	if err != nil {
		return copier.Plan{}, err
	}
	if blocked != "" {
		plan, err := l.s.copiers.copier(l.dm).Plan(ctx, true)
		plan.Unasked = blocked
		return plan, err
	}
	return l.s.copiers.copierOver(l.dm, version, copier.AskServer()).Plan(ctx, true)
}

// Dependents are the objects outside Calico that the migration would take owner references
// off, and the resources that it cannot look into.
func (l *Inspector) Dependents(ctx context.Context) (found []string, unseen []string, err error) {
	all, err := l.s.dependents.findDependents(ctx, l.s.copiers.copier(l.dm))
	for _, obj := range all.found {
		found = append(found, nameOf(obj))
	}
	return found, all.unseen(), err
}

// Compare compares what both sides have. version is the one by which v3's storage was
// reached; blocked is why it cannot be: nothing was compared then.
func (l *Inspector) Compare(ctx context.Context) (compared copier.Comparison, version, blocked string, err error) {
	version, blocked, err = l.s.door.v3Version(ctx, l.machine, l.dm)
	if err != nil || blocked != "" {
		return copier.Comparison{}, "", blocked, err
	}
	compared, err = l.s.copiers.copierOver(l.dm, version).Compare(ctx)
	return compared, version, "", err
}

// Both are the two sides of one object.
type Both struct {
	// V1 is as it is stored, Want is it as it would be in v3, Have is what v3 has. Any is
	// nil where it is gone meanwhile.
	V1, Want, Have *unstructured.Unstructured
}

// Sides reads both sides of conflicts, in their order.
func (l *Inspector) Sides(ctx context.Context, conflicts []copier.Conflict, version string) ([]Both, error) {
	type key struct{ kind, namespace, name string }
	want, raw := map[key]*unstructured.Unstructured{}, map[key]*unstructured.Unstructured{}
	kinds := map[string]bool{}
	for _, c := range conflicts {
		kinds[c.Kind] = true
		want[key{c.Kind, c.Namespace, c.Name}] = nil
	}
	reg := l.s.registry.Through(version)
	for _, kind := range reg.Kinds() {
		if !kinds[kind.Name()] {
			continue
		}
		err := l.s.copiers.copier(l.dm).EachV1(ctx, kind, func(v1 *unstructured.Unstructured) error {
			conv, err := resources.Convert(kind, v1, nil)
			if err != nil {
				return err
			}
			at := key{kind.Name(), conv.Object.GetNamespace(), conv.Object.GetName()}
			if _, asked := want[at]; asked {
				want[at], raw[at] = conv.Object.DeepCopy(), v1.DeepCopy()
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s of v1: %w", kind.Name(), err)
		}
	}
	all := make([]Both, len(conflicts))
	for i, c := range conflicts {
		at := key{c.Kind, c.Namespace, c.Name}
		kind, _ := reg.Kind(c.Kind)
		have, err := l.read(ctx, kind, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		if err != nil {
			return nil, err
		}
		all[i] = Both{V1: raw[at], Want: want[at], Have: have}
	}
	return all, nil
}

// read answers nil where there is none.
func (l *Inspector) read(ctx context.Context, kind *resources.Kind, name types.NamespacedName) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.V3GVK())
	return read(ctx, l.s.client, name, u, fmt.Sprintf("%s %s of v3", kind.Name(), name))
}

// WebhookDelay is how much longer v1 stays locked because of webhooks that are asked about writes of it.
func (l *Inspector) WebhookDelay(ctx context.Context) (time.Duration, error) {
	slow, err := l.s.slowWebhooks(ctx)
	return longestDelay(slow), err
}

// ExpectedLock is how long v1 stays locked where objects are copied ahead, and what that
// rests on: the cut-over takes its time whatever there is to copy; under the lock everything
// is compared, in memory; and owners that are withheld take a request each. perSecond is how
// many objects the last round has done in a second: no more owners are added in one. delay is that of WebhookDelay.
func ExpectedLock(objects int64, perSecond int32, withheld int64, delay time.Duration) (seconds int32, basis string) {
	rate := max(min(perSecond, OwnersPerSecond), 1)
	compare := time.Duration(objects) * compareEach
	expected := cutOver.Seconds() + compare.Seconds() + float64(withheld)/float64(rate) + delay.Seconds()
	basis = fmt.Sprintf("%s for the cut-over, %.1fs to compare %d objects, %d withheld owners to add at %d a second",
		cutOver, compare.Seconds(), objects, withheld, rate)
	if delay > 0 {
		basis += fmt.Sprintf(", %s for writes that wait in webhooks", delay)
	}
	return int32(math.Ceil(expected)), basis
}
