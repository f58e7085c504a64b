package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/fsm"
)

// toolHiveProxy is what came of the configurations that a server names.
type toolHiveProxy struct {
	server *server
	// proxy is nil where there is a problem.
	proxy    *toolhive.Proxy
	findings []finding
	// wrong are the problems, by the condition that tells of each; under "" those of
	// which none does.
	wrong map[string][]*problem
	// bundles: certificates of authorities were looked at.
	bundles bool
}

// toolHive reads what the spec names, and makes the proxy of it. The error is about
// what could not be asked: a problem is none.
func (s *steps) toolHive(ctx context.Context, srv *server) (*toolHiveProxy, error) {
	made := &toolHiveProxy{server: srv, wrong: map[string][]*problem{}}
	var err error
	if made.findings, err = s.findings(ctx, srv); err != nil {
		return nil, err
	}
	named, err := s.objects(ctx, srv, made)
	if err != nil || len(made.wrong) > 0 {
		return made, err
	}
	proxy, wrong := toolhive.Make(srv, runConfig(srv), named)
	for _, w := range wrong {
		made.add(made.told(w))
	}
	if proxy == nil {
		return made, nil
	}
	if err := s.checkBundles(ctx, srv, proxy, made); err != nil {
		return nil, err
	}
	if len(made.wrong) == 0 {
		made.proxy = proxy
	}
	return made, nil
}

// objects are those that the spec names; each that is not there, or says of itself that it
// is not valid, is a problem.
func (s *steps) objects(ctx context.Context, srv *server, made *toolHiveProxy) (named toolhive.Objects, err error) {
	for _, f := range made.findings {
		if f.into == nil { // the proxy is not made of it
			continue
		}
		if p := f.problem(srv); p != nil {
			made.add(f.condition, p)
		}
		*f.into(&named) = f.config
	}
	name := toolhive.PoliciesOf(srv)
	if name == "" {
		return named, nil
	}
	if named.Policies, err = s.configMap(ctx, srv, name); err == nil && named.Policies == nil {
		made.add("", newProblem("AuthzConfigMapNotFound", "ConfigMap %s, which spec.authzConfig names, is not in namespace %s: create it", name, srv.Namespace))
	}
	return named, err
}

func (p *toolHiveProxy) add(condition string, wrong *problem) {
	p.wrong[condition] = append(p.wrong[condition], wrong)
}

// told is the condition that tells of a field, and what it tells.
func (p *toolHiveProxy) told(w *toolhive.InvalidError) (string, *problem) {
	if w.Field == "rateLimiting" { // its condition is that of the spec alone: rateLimitCondition
		if p := rateLimitProblem(p.server); p != nil {
			return "", p
		}
	}
	for _, f := range p.findings {
		if f.field == w.Field {
			return f.condition, newProblem(f.invalid, "%v", w)
		}
	}
	return "", newProblem("InvalidSpec", "%v", w)
}

// checkBundles looks for the certificates that the proxy's pods mount: without one, none
// of them would start, and nobody would say why.
func (s *steps) checkBundles(ctx context.Context, srv *server, proxy *toolhive.Proxy, made *toolHiveProxy) error {
	for _, v := range proxy.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		made.bundles = true
		bundle, err := s.configMap(ctx, srv, v.ConfigMap.Name)
		if err != nil {
			return err
		}
		key := v.ConfigMap.Items[0].Key
		switch {
		case bundle == nil:
			made.add(conditionCABundle, newProblem("CABundleRefNotFound", "ConfigMap %s, which has the certificate of an authority, is not in namespace %s: create it", v.ConfigMap.Name, srv.Namespace))
		case bundle.Data[key] == "":
			made.add(conditionCABundle, newProblem("CABundleRefInvalid", "ConfigMap %s has no certificate under %s: add it", v.ConfigMap.Name, key))
		}
	}
	return nil
}

// configMap is nil where there is none.
func (s *steps) configMap(ctx context.Context, srv *server, name string) (*corev1.ConfigMap, error) {
	found, there, err := apply.Read(ctx, s.client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: srv.Namespace, Name: name}})
	if err != nil || !there {
		return nil, err
	}
	return found, nil
}

// problem is Terminal and tells all that keeps a proxy from being made; nil if nothing does.
func (p *toolHiveProxy) problem() error {
	var all []*problem
	for _, condition := range slices.Sorted(maps.Keys(p.wrong)) {
		all = append(all, p.wrong[condition]...)
	}
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, w := range all {
		texts[i] = w.Message
	}
	return fsm.Terminal(all[0].Reason, "%s", strings.Join(texts, "; "))
}

// tell sets the conditions of what the spec has.
func (p *toolHiveProxy) tell(srv *server) {
	for _, f := range p.findings {
		f.tell(srv)
	}
	setCondition(srv, conditionCABundle, nil)
	if p.bundles {
		setCondition(srv, conditionCABundle, &metav1.Condition{Status: metav1.ConditionTrue, Reason: "CABundleRefValid", Message: "the certificates of authorities are there"})
	}
	for condition, wrong := range p.wrong {
		if condition == "" {
			continue
		}
		texts := make([]string, len(wrong))
		for i, w := range wrong {
			texts[i] = w.Message
		}
		setCondition(srv, condition, whileFalse(newProblem(wrong[0].Reason, "%s", strings.Join(texts, "; "))))
	}
}

// proxyFile is what the proxy reads, of whichever flavour.
type proxyFile struct {
	content  any
	checksum string
	// stamp sets the generation of the content.
	stamp func(generation int64)
}

// fileOf makes the file of a server: that of ToolHive's proxyrunner, or of our own where
// there is none.
func fileOf(srv *server, proxy *toolhive.Proxy) (*proxyFile, error) {
	if proxy == nil {
		rc := runConfig(srv)
		sum, err := checksumOf(rc)
		return &proxyFile{content: rc, checksum: sum, stamp: func(g int64) { rc.MCPServerGeneration = g }}, err
	}
	sum, err := sumOf(proxy.Config.Content())
	if err != nil {
		return nil, fmt.Errorf("of MCPServer %s/%s: %w", srv.Namespace, srv.Name, err)
	}
	return &proxyFile{content: proxy.Config, checksum: sum, stamp: func(g int64) { proxy.Config.MCPServerGeneration = g }}, nil
}
