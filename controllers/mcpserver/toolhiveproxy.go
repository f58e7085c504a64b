package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
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
	// bundles are the certificates of authorities, by their place; nil if none was looked at.
	bundles map[toolhive.ConfigMapKey]string
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
	proxy, wrong := toolhive.Make(srv, runConfig(srv), named, s.Program)
	for _, w := range wrong {
		made.add(made.told(w))
	}
	if proxy == nil {
		return made, nil
	}
	if made.bundles, err = s.checkBundles(ctx, srv, proxy, made); err != nil {
		return nil, err
	}
	if len(made.wrong) == 0 {
		made.proxy = proxy
		proxy.CopiedSum, err = copiedSum(proxy, made.bundles)
	}
	return made, err
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
func (s *steps) checkBundles(ctx context.Context, srv *server, proxy *toolhive.Proxy, made *toolHiveProxy) (map[toolhive.ConfigMapKey]string, error) {
	var bundles map[toolhive.ConfigMapKey]string
	for _, from := range proxy.Bundles {
		if bundles == nil {
			bundles = map[toolhive.ConfigMapKey]string{}
		}
		bundle, err := s.configMap(ctx, srv, from.Name)
		switch {
		case err != nil:
			return nil, err
		case bundle == nil:
			made.add(conditionCABundle, newProblem("CABundleRefNotFound", "ConfigMap %s, which has the certificate of an authority, is not in namespace %s: create it", from.Name, srv.Namespace))
		case bundle.Data[from.Key] == "":
			made.add(conditionCABundle, newProblem("CABundleRefInvalid", "ConfigMap %s has no certificate under %s: add it", from.Name, from.Key))
		default:
			bundles[from] = bundle.Data[from.Key]
		}
	}
	return bundles, nil
}

// copiedSum is the checksum of the certificates that running pods would not get anew; empty for none.
func copiedSum(proxy *toolhive.Proxy, bundles map[toolhive.ConfigMapKey]string) (string, error) {
	var copied []string
	for _, from := range proxy.CopiedBundles {
		copied = append(copied, bundles[from])
	}
	if len(copied) == 0 {
		return "", nil
	}
	return sumOf(copied)
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

// unsent is that the proxy does not send a credential to the server; nil for none.
func (p *toolHiveProxy) unsent() *problem {
	if p.proxy == nil || p.proxy.Unsent == "" {
		return nil
	}
	return newProblem(v1beta1.ReasonNotSent, "without effect on this proxy: spec.externalAuthConfigRef: %s is not sent to the server, since the proxyrunner sends it to servers elsewhere only: give it to the server with spec.secrets, or remove the reference", p.proxy.Unsent)
}

// tell sets the conditions of what the spec has.
func (p *toolHiveProxy) tell(srv *server) {
	for _, f := range p.findings {
		f.tell(srv)
	}
	setCondition(srv, conditionCABundle, nil)
	if p.bundles != nil {
		setCondition(srv, conditionCABundle, &metav1.Condition{Status: metav1.ConditionTrue, Reason: "CABundleRefValid", Message: "the certificates of authorities are there"})
	}
	setCondition(srv, v1beta1.ConditionSpecEnforced, whileFalse(notEnforced(ToolHive, srv, p.unsent())))
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
