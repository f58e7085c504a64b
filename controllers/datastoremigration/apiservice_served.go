package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// awaitV3Served waits until every API server answers every v3 kind, and answers it from its
// CRD: an aggregated server that still answers would make every copy look as if
// it were there already. Which ones there are, Drain has read anew a moment before.
func (p *apiServiceTakeover) awaitV3Served(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := p.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if svc == nil || isAggregated(svc) {
		return nil, cmp.Or(p.staysDisabled(ctx, sc), fsm.Wait("APIService %s does not point to the CRDs yet", apiServiceName))
	}
	_, err = p.servers.eachServer(ctx, sc, cached, p.serverServesV3)
	return nil, err
}

func (p *apiServiceTakeover) serverServesV3(ctx context.Context, server apiServer) error {
	group, listing := errgroup.WithContext(ctx)
	for _, kind := range p.registry.All() {
		group.Go(func() error { return served(listing, server.client, kind) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	aggregated, err := p.answersFromV1(ctx, server.client)
	if err == nil && aggregated {
		return fsm.Wait("%s is still answered by the aggregated API server, at %s", apiServiceName, server.name())
	}
	return err
}

func (s *door) warmRights() []rbacv1.PolicyRule {
	return grants(apiServersRights(), onAPIService("get"), allOf("list", resources.V3Group, s.registry.All(), (*resources.Kind).V3Plural))
}

// warmsFor is how long an API server may take to get ready for all kinds of v3. Nothing is locked meanwhile, and objects
// are copied.
const warmsFor = 30 * time.Second

// warm lets every API server get ready for every v3 kind while v1 is open: at the first request for a kind it compiles the
// schema and fills a cache with all objects, and but for the one that our connection leads to none has had any. A busy one
// may take long for a kind, which is what this is for, and one that does not answer at all is left alone after warmsFor. What
// cannot be asked now is asked, and waited for, under the lock.
func (s *door) warm(ctx context.Context, sc *scope) {
	version, blocked, err := s.v3Version(ctx, sc.Machine, sc.Object)
	if err != nil || blocked != "" {
		return
	}
	all, _ := s.takeover.servers.servers(ctx, sc.Object, sc.Clock.Now(), newest)
	var servers sync.WaitGroup
	for _, server := range all {
		servers.Go(func() {
			asking, cancel := context.WithTimeout(ctx, warmsFor)
			defer cancel()
			var kinds errgroup.Group
			kinds.SetLimit(doorsAtATime)
			for _, kind := range s.registry.Through(version).All() {
				kinds.Go(func() error {
					_ = served(asking, server.client, kind) // it is asked again under the lock
					return nil
				})
			}
			_ = kinds.Wait()
		})
	}
	servers.Wait()
}

func served(ctx context.Context, c client.Client, kind *resources.Kind) error {
	list := &metav1.PartialObjectMetadataList{}
	gvk := kind.V3GVK()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	err := c.List(ctx, list, client.Limit(1))
	switch {
	case apierrs.IsNotFound(err), meta.IsNoMatchError(err), apierrs.IsServiceUnavailable(err):
		return fsm.Wait("%s is not served yet", kind.V3CRDName())
	case err != nil:
		return fmt.Errorf("list %s: %w", kind.V3CRDName(), err)
	}
	return nil
}

var v3GroupVersion = schema.GroupVersion{Group: resources.V3Group, Version: resources.V3Version}

// staleServer says which API server tells clients of other kinds of v3 than it serves; empty where none is known. One
// that does not answer is passed over: it knows better when it is started again.
func (p *apiServiceTakeover) staleServer(ctx context.Context, sc *scope) string {
	if p.servers.config == nil {
		return ""
	}
	all, err := p.servers.servers(ctx, sc.Object, sc.Clock.Now(), newest)
	if err != nil {
		all = []apiServer{{}}
	}
	for _, server := range all {
		if told, serves, ok := discoveryOfV3(server.config(p.servers.config)); ok && !slices.Equal(told, serves) {
			return fmt.Sprintf("%s still tells clients of the kinds of the aggregated API server: %s", server.name(), strings.Join(told, ", "))
		}
	}
	return ""
}

// discoveryOfV3 are the kinds of v3 that clients are told of, and those that are served, with their verbs; not ok where
// that cannot be known.
func discoveryOfV3(cfg *rest.Config) (told, serves []string, ok bool) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = serverAnswers
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, false
	}
	_, byVersion, failed, err := c.GroupsAndMaybeResources()
	if err != nil || byVersion == nil { // an API server that tells each group by itself keeps nothing
		return nil, nil, false
	}
	now, err := c.ServerResourcesForGroupVersion(v3GroupVersion.String())
	if err != nil {
		return nil, nil, false
	}
	if failed[v3GroupVersion] != nil {
		return []string{failed[v3GroupVersion].Error()}, kindsIn(now), true
	}
	return kindsIn(byVersion[v3GroupVersion]), kindsIn(now), true
}

func kindsIn(list *metav1.APIResourceList) (kinds []string) {
	if list == nil {
		return nil
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			kinds = append(kinds, r.Name+" ("+strings.Join(slices.Sorted(slices.Values(r.Verbs)), " ")+")")
		}
	}
	slices.Sort(kinds)
	return kinds
}
