package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func resolveRefsRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{on("get", v1beta1.GroupVersion.Group, "mcptoolconfigs", "mcpexternalauthconfigs")}
}

// hashBytes of a hash are shown: enough to tell one content from another.
const hashBytes = 8

// ref is a configuration that a server may name, and where the status tells of it.
type ref struct {
	kind, condition, valid, absent string
	// of is the reference in the spec; nil if there is none.
	of func(*server) *v1beta1.LocalRef
	// hash points into the status.
	hash func(*server) *string
}

var refs = []ref{
	{
		kind: "MCPToolConfig", condition: v1beta1.ConditionToolConfigRefValidated,
		valid: v1beta1.ReasonToolConfigRefValid, absent: v1beta1.ReasonToolConfigRefNotFound,
		of:   func(s *server) *v1beta1.LocalRef { return s.Spec.ToolConfigRef },
		hash: func(s *server) *string { return &s.Status.ToolConfigHash },
	},
	{
		kind: "MCPExternalAuthConfig", condition: v1beta1.ConditionExternalAuthConfigValidated,
		valid: v1beta1.ReasonExternalAuthConfigValid, absent: v1beta1.ReasonExternalAuthConfigAbsent,
		of:   func(s *server) *v1beta1.LocalRef { return s.Spec.ExternalAuthConfigRef },
		hash: func(s *server) *string { return &s.Status.ExternalAuthConfigHash },
	},
}

// resolveRefs writes the status only. What is not found is told and keeps nobody
// from running; what could not be asked is an error, and leaves the status as it is.
func (s *steps) resolveRefs(ctx context.Context, sc *scope) (outputs, error) {
	for _, r := range refs {
		named := r.of(sc.Object)
		if named == nil {
			sc.Report(r.forget)
			continue
		}
		config, err := s.config(ctx, r.kind, sc.Object.Namespace, named.Name)
		if err != nil {
			return nil, err
		}
		hash, err := hashOf(config)
		if err != nil {
			return nil, fmt.Errorf("hash %s %s/%s: %w", r.kind, sc.Object.Namespace, named.Name, err)
		}
		sc.Report(func(srv *server) { r.tell(srv, named.Name, hash) })
	}
	return nil, nil
}

// config is nil where there is none, also because its kind is not installed.
func (s *steps) config(ctx context.Context, kind, namespace, name string) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
	err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config)
	switch {
	case apierrs.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s/%s: %w", kind, namespace, name, err)
	}
	return config, nil
}

// hashOf is that of the spec, as JSON with sorted keys; empty for nil.
func hashOf(config *unstructured.Unstructured) (string, error) {
	if config == nil {
		return "", nil
	}
	text, err := json.Marshal(config.Object["spec"])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashBytes]), nil
}

// tell records what a look at the configuration has found; an empty hash is nothing.
func (r ref) tell(srv *server, name, hash string) {
	*r.hash(srv) = hash
	c := &metav1.Condition{Status: metav1.ConditionTrue, Reason: r.valid, Message: fmt.Sprintf("%s %s has hash %s", r.kind, name, hash)}
	if hash == "" {
		c = &metav1.Condition{Status: metav1.ConditionFalse, Reason: r.absent,
			Message: fmt.Sprintf("%s %s is not in namespace %s: create it, or remove the reference", r.kind, name, srv.Namespace)}
	}
	setCondition(srv, r.condition, c)
}

// forget is for a reference that the spec does not have any more.
func (r ref) forget(srv *server) {
	*r.hash(srv) = ""
	setCondition(srv, r.condition, nil)
}
