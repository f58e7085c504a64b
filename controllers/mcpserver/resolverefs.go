package mcpserver

import (
	"context"
	"fmt"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resolveRefs writes the status only. Where the proxy does without the configurations,
// one that is not found is told and keeps nobody from running; ToolHive's proxyrunner
// runs from them, so that what is missing or wrong stops the server. What could not be
// asked is an error, which leaves the status as it is but for the reasons that ToolHive has
// for it.
func (s *steps) resolveRefs(ctx context.Context, sc *scope) (outputs, error) {
	if s.Proxy == ToolHive {
		made, err := s.toolHive(ctx, sc.Object)
		if err != nil {
			sc.Report(func(srv *server) { tellUnread(srv, err) })
			return nil, err
		}
		sc.Report(made.tell)
		return nil, made.problem()
	}
	found, err := s.findings(ctx, sc.Object)
	if err != nil {
		return nil, err
	}
	sc.Report(func(srv *server) {
		for _, f := range found {
			f.tell(srv)
		}
	})
	return nil, nil
}

// finding is what a reference leads to.
type finding struct {
	ref
	// name is in the spec; empty without a reference.
	name  string
	named bool
	// config is nil where there is none, and sum empty.
	config *unstructured.Unstructured
	// sum is its hash.
	sum string
}

// findings are those of all references that the flavour looks at.
func (s *steps) findings(ctx context.Context, srv *server) ([]finding, error) {
	var found []finding
	for _, r := range s.Proxy.refs() {
		f := finding{ref: r}
		if named := r.of(srv); named != nil {
			f.name, f.named = named.Name, true
			var err error
			if f.config, err = s.config(ctx, r, srv.Namespace, f.name); err != nil {
				return nil, &unreadError{r, err}
			}
			if f.sum, err = hashOf(f.config); err != nil {
				return nil, fmt.Errorf("hash %s %s/%s: %w", r.kind, srv.Namespace, f.name, err)
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// config is nil where there is none, also because its kind is not installed.
func (s *steps) config(ctx context.Context, r ref, namespace, name string) (*unstructured.Unstructured, error) {
	if name == "" {
		return nil, nil
	}
	config := &unstructured.Unstructured{}
	config.SetAPIVersion(r.apiVersion())
	config.SetKind(r.kind)
	err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config)
	switch {
	case apierrs.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", r.kind, namespace, name, err)
	}
	return config, nil
}
