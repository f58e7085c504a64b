package mcpserver

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
)

func grantRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		on("list", appsv1.GroupName, "statefulsets"),
		on("list", corev1.GroupName, "services", "pods"),
		on("get delete", rbacv1.GroupName, "rolebindings"),
	}
}

// grantNothingOfOthers asks whose the objects are that the proxy's Role names, before there is a Role. The error of one that
// is somebody else's is an *apply.NotOursError or *apply.DeletingError; rights that were granted before it was there are
// withdrawn first.
func (s *steps) grantNothingOfOthers(ctx context.Context, srv *server) error {
	others, err := s.othersIn(ctx, srv, role(s.Proxy, srv).Rules)
	if err != nil || others == nil {
		return err
	}
	binding := child{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), v1beta1.ProxyRBACName(srv.Name), controlled, metav1.DeletePropagationBackground}
	if _, err := s.remove(ctx, srv, binding); err != nil {
		return err
	}
	return others
}

// grantedKinds are those of the resources of which a Role names objects, and who a live one belongs to.
var grantedKinds = map[string]struct {
	schema.GroupVersionKind
	ours func(*server, metav1.Object) bool
}{
	"statefulsets": {appsv1.SchemeGroupVersion.WithKind("StatefulSet"), ours},
	"services":     {corev1.SchemeGroupVersion.WithKind("Service"), ours},
	"pods/attach":  {corev1.SchemeGroupVersion.WithKind("Pod"), ofBackend}, // the StatefulSet is asked about before
}

// othersIn is the first object of somebody else that rules give a right to beyond reading it; nil for none.
func (s *steps) othersIn(ctx context.Context, srv *server, rules []rbacv1.PolicyRule) (others, err error) {
	for _, rule := range rules {
		if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb != "get" }) {
			continue
		}
		for _, name := range rule.ResourceNames {
			for _, resource := range rule.Resources {
				if others, err = s.otherOf(ctx, srv, resource, name); others != nil || err != nil {
					return others, err
				}
			}
		}
	}
	return nil, nil
}

// otherOf tells of an object that is there and somebody else's.
func (s *steps) otherOf(ctx context.Context, srv *server, resource, name string) (other, err error) {
	kind, known := grantedKinds[resource]
	if !known {
		return nil, fmt.Errorf("the Role of the proxy names %s %s, and it is not known whose that is: add it to grantedKinds", resource, name)
	}
	live, err := s.lookUp(ctx, kind.GroupVersionKind, client.ObjectKey{Namespace: srv.Namespace, Name: name})
	switch object := fmt.Sprintf("%s %s/%s", kind.Kind, srv.Namespace, name); {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", object, err)
	case live == nil || kind.ours(srv, live):
		return nil, nil
	case live.DeletionTimestamp != nil:
		return &apply.DeletingError{Object: object}, nil
	default:
		return apply.NotOurs(object, live), nil
	}
}

// lookUp is nil for none. It lists the object of the name: the manager may list pods, and get none.
func (s *steps) lookUp(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	named := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name)}
	if err := s.client.List(ctx, list, client.InNamespace(key.Namespace), named); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}
