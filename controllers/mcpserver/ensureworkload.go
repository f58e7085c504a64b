package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/fsm"
)

// ensureWorkloadRights include those of a proxy: nobody can grant what he does not
// have.
func ensureWorkloadRights(proxy Flavour) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		on("get create patch", corev1.GroupName, "serviceaccounts", "services", "configmaps"),
		on("get create patch", appsv1.GroupName, "deployments"),
		on("get create patch", rbacv1.GroupName, "roles", "rolebindings"),
		on("get patch", appsv1.GroupName, "statefulsets"),
		on("update", v1beta1.GroupVersion.Group, "mcpservers/finalizers"), // ownerReference
		on("delete", corev1.GroupName, "configmaps"),                      // dropPolicies
	}
	rules = append(rules, grantRights()...)
	if proxy == ToolHive {
		rules = append(rules, makeWayRights()...)
		rules = append(rules, proxy.configRights()...)
	}
	for _, rule := range role(proxy, &server{}).Rules {
		rule.ResourceNames = nil // those of any server
		rules = append(rules, rule)
	}
	return rules
}

// fieldManager is that of everything which EnsureWorkload makes.
const fieldManager = "phasegate-mcpserver"

// ensureWorkload makes what the Deployment needs before the Deployment. Each
// object is one write, and any prefix of them is a state that the next look goes
// on from.
//
// The spec may be newer than the last CheckSpec: a look goes on with the step that
// failed or waited last. So what stops a server is asked here as well.
func (s *steps) ensureWorkload(ctx context.Context, sc *scope) (outputs, error) {
	srv := sc.Object
	if err := unusable(s.Proxy, srv); err != nil {
		return nil, err
	}
	peers, err := s.peersProxy(ctx, srv)
	if err != nil {
		return nil, err
	}
	a := apply.Applier{Client: s.client, Manager: fieldManager, Owner: ownerReference(srv)}
	set, _, err := apply.Read(ctx, s.client, &appsv1.StatefulSet{ObjectMeta: objectMeta(srv, srv.Name)})
	if err != nil {
		return nil, err
	}
	if err := s.grantNothingOfOthers(ctx, srv); err != nil {
		return nil, classified(err)
	}
	if err := forgetStamp(ctx, s.client, srv, set); err != nil {
		return nil, classified(err)
	}
	if s, err = s.onCluster(ctx); err != nil {
		return nil, err
	}
	now, err := s.ensureProxy(ctx, a, sc, set, peers)
	if err == nil && s.Proxy == ToolHive {
		set, err = s.makeWay(ctx, srv, set)
	}
	if err != nil {
		return nil, classified(err)
	}
	return nil, classified(s.scaleBackend(ctx, srv, now, set))
}

// onCluster is s with what is for the cluster to say.
func (s *steps) onCluster(ctx context.Context) (*steps, error) {
	if s.OpenShift == nil {
		return s, nil
	}
	here := *s
	var err error
	if here.AnyUser, err = s.OpenShift(ctx); err != nil {
		return nil, fmt.Errorf("ask whether this is OpenShift: %w", err)
	}
	return &here, nil
}

func (s *steps) ensureProxy(ctx context.Context, a apply.Applier, sc *scope, set *appsv1.StatefulSet, peers *toolhive.Proxy) (*appsv1.Deployment, error) {
	srv := sc.Object
	if err := s.ensureAccounts(ctx, a, srv); err != nil {
		return nil, err
	}
	if err := ensureService(ctx, a, srv); err != nil {
		return nil, err
	}
	live, found, err := apply.Read(ctx, a.Client, &appsv1.Deployment{ObjectMeta: objectMeta(srv, srv.Name)})
	if err != nil {
		return nil, err
	}
	want, err := s.proxyOf(srv, live, peers)
	if err != nil {
		return nil, err
	}
	if err := s.tryBackend(ctx, sc, live, set, want); err != nil {
		return nil, err
	}
	// The file first: pods of a newer template must not read an older one.
	for _, m := range want.maps() {
		if _, err := ensure(ctx, a, m); err != nil {
			return nil, err
		}
	}
	if err := makeRoom(ctx, a.Client, srv, live, found, func(d *appsv1.Deployment) { roomInDeployment(d, want.deployment) }); err != nil {
		return nil, err
	}
	leftover := policiesLeftOver(live, want.deployment)
	now, _, err := apply.Put(ctx, a, live, found, want.deployment)
	if err == nil && leftover {
		err = s.dropPolicies(ctx, srv, now)
	}
	return now, err
}

// ensureAccounts makes whom proxy and server act as, and what the proxy may do.
func (s *steps) ensureAccounts(ctx context.Context, a apply.Applier, srv *server) error {
	accounts := []*corev1.ServiceAccount{proxyAccount(srv)}
	if srv.Spec.ServiceAccount == nil {
		accounts = append(accounts, backendAccount(srv))
	}
	for _, account := range accounts {
		if _, err := ensure(ctx, a, account); err != nil {
			return err
		}
	}
	if _, err := ensure(ctx, a, role(s.Proxy, srv)); err != nil {
		return err
	}
	_, err := ensure(ctx, a, roleBinding(srv))
	return err
}

func ensureService(ctx context.Context, a apply.Applier, srv *server) error {
	desired := service(srv)
	live, found, err := apply.Read(ctx, a.Client, desired)
	if err != nil {
		return err
	}
	if err := makeRoom(ctx, a.Client, srv, live, found, func(s *corev1.Service) { roomInService(s, desired) }); err != nil {
		return err
	}
	_, _, err = apply.Put(ctx, a, live, found, desired)
	return err
}

// proxy is what a proxy is made of, and what it makes of that.
type proxy struct {
	deployment *appsv1.Deployment
	file       *corev1.ConfigMap
	// policies are nil where the spec has none inline.
	policies *corev1.ConfigMap
	backend  backend.Config
}

// maps are those that its pods mount.
func (p *proxy) maps() []*corev1.ConfigMap {
	if p.policies == nil {
		return []*corev1.ConfigMap{p.file}
	}
	return []*corev1.ConfigMap{p.file, p.policies}
}

// peersProxy is what ToolHive's proxyrunner is to be given; nil with another flavour.
func (s *steps) peersProxy(ctx context.Context, srv *server) (*toolhive.Proxy, error) {
	if s.Proxy != ToolHive {
		return nil, nil
	}
	made, err := s.toolHive(ctx, srv)
	if err != nil {
		return nil, err
	}
	return made.proxy, made.problem()
}

// proxyOf is the proxy of a server, given the Deployment that is there (nil for none),
// and what ToolHive's proxyrunner is to be given (nil for our own). It is pure.
func (s *steps) proxyOf(srv *server, live *appsv1.Deployment, peers *toolhive.Proxy) (*proxy, error) {
	patch, err := podPatch(srv)
	if err != nil {
		return nil, fsm.Terminal("InvalidSpec", "%w", err)
	}
	file, err := fileOf(srv, peers)
	if err != nil {
		return nil, err
	}
	now, applied := &appsv1.Deployment{}, &appsv1.Deployment{}
	if live != nil {
		now = live
		if applied, err = apply.Owned(live, fieldManager); err != nil {
			return nil, err
		}
	}
	d := deployment(srv, now.Spec.Replicas, applied.Spec.Replicas)
	if d.Spec.Template, err = s.proxyPods(srv, patch, file.checksum, peers); err != nil {
		return nil, fsm.Terminal("InvalidSpec", "%w", err)
	}
	run := runConfig(srv)
	run.MCPServerGeneration = freeze.Stamp(&d.Spec.Template, &applied.Spec.Template, srv.Generation)
	d.Spec.Template.Annotations[v1beta1.AnnotationGeneration] = strconv.FormatInt(run.MCPServerGeneration, 10)
	file.stamp(run.MCPServerGeneration)
	cm, err := configMap(srv, file.content, file.checksum)
	return &proxy{deployment: d, file: cm, policies: policiesMap(srv, peers), backend: backend.Config{
		Namespace: srv.Namespace, Run: run, Image: srv.Spec.Image, PodPatch: []byte(patch), AnyUser: s.AnyUser,
	}}, err
}

func ensure[T client.Object](ctx context.Context, a apply.Applier, desired T) (T, error) {
	live, found, err := apply.Read(ctx, a.Client, desired)
	if err != nil {
		return live, err
	}
	now, _, err := apply.Put(ctx, a, live, found, desired)
	return now, err
}

// ownerReference makes a deletion in the foreground wait for what was made, as with the peer's
// operator. Where the admission plugin OwnerReferencesPermissionEnforcement runs, that takes a
// right to the server's finalizers.
func ownerReference(srv *server) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "MCPServer", Name: srv.Name, UID: srv.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// classified tells the machine what an error is about: a taken name and a refused
// object need a person, an object on its way out needs time.
func classified(err error) error {
	var taken *apply.NotOursError
	var going *apply.DeletingError
	switch {
	case errors.As(err, &taken):
		return fsm.Terminal("NameTaken", "%w", err)
	case errors.As(err, &going):
		return fsm.Wait("%v", err)
	case apierrs.IsInvalid(err):
		return fsm.Terminal("InvalidSpec", "the API server refuses what the spec leads to: %w: change the spec", err)
	}
	return err
}
