package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

var v3GroupVersion = schema.GroupVersion{Group: resources.V3Group, Version: resources.V3Version}

// forgetParked deletes the parked APIService and what was saved of it, for good. kube-apiserver makes one for
// the CRDs at once, and v3 is served without a pause.
//
// Turning it in place is not enough. An API server that has seen an APIService of a server goes on to ask that
// server for its kinds when it is turned into one of CRDs, and tells clients of those. Once that server is removed,
// discovery of v3 is stale, and no namespace of the cluster ends any more. Only a deletion makes it forget. One that
// has not heard of the deletion, since the new one came too soon, hears of another.
func (s *steps) forgetParked(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if svc != nil && !isAggregated(svc) && (svc.Annotations[migrationv1.AnnotationSavedAPIService] != "" || s.staleServer(ctx, sc) != "") {
		if err := s.deleteAPIService(ctx, svc); err != nil {
			return nil, err
		}
	}
	if stale := s.staleServer(ctx, sc); stale != "" {
		return nil, &fsm.WaitError{After: serverPoll, Message: stale}
	}
	return nil, sc.Save(ctx, savedAPIServiceKey, "")
}

func (s *steps) deleteAPIService(ctx context.Context, svc *apiregistrationv1.APIService) error {
	err := s.client.Delete(ctx, svc, client.Preconditions{UID: &svc.UID, ResourceVersion: &svc.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete APIService %s, which kube-apiserver makes anew: %w", apiServiceName, err)
	}
	return nil
}

// staleServer says which API server tells clients of other kinds of v3 than it serves; empty where none is known. One
// that does not answer is passed over: it knows better when it is started again.
func (s *steps) staleServer(ctx context.Context, sc *scope) string {
	if s.Config == nil {
		return ""
	}
	all, err := s.servers(ctx, sc.Object, sc.Clock.Now(), newest)
	if err != nil {
		all = []apiServer{{}}
	}
	for _, server := range all {
		if told, serves, ok := discoveryOfV3(server.config(s.Config)); ok && !slices.Equal(told, serves) {
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
