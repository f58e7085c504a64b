// Package backend makes the MCP server behind a proxy: its StatefulSet and, where
// it speaks HTTP, its Services. The proxy runs it, not the operator.
//
// It does not know how the server is talked to. Whether a proxy may apply at all
// is decided in package freeze, what is sent in package apply.
package backend

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
)

// Config is what a proxy knows of its backend.
type Config struct {
	Namespace string
	// Run is the file, with the proxy's own generation; it must have an owner.
	Run *runconfig.RunConfig
	// Image of the server.
	Image string
	// PodPatch is a PodTemplateSpec in JSON, which is laid over the defaults; empty
	// for none.
	PodPatch []byte
	// AnyUser leaves the user and the groups of the pods to the cluster, where the pod template says none.
	AnyUser bool
	// Stale says that the file is newer than the proxy's pod.
	Stale bool
}

// Result tells what came of a Deploy.
type Result struct {
	// Skipped says that a newer proxy has applied, and nothing was done; Why says
	// how that is known. Without Skipped, Why is empty or a warning.
	Skipped bool
	Why     string
	// Host is where a backend that speaks HTTP listens, skipped or not.
	Host string
}

// Deploy applies the backend unless a newer proxy has. It may be called again, and
// writes nothing then. It does not wait for pods.
//
// What was decided holds for the StatefulSet that was read: if it changed before
// it was written, it is read again and decided again. An object of somebody else
// is an *apply.NotOursError, one that is going an *apply.DeletingError.
func Deploy(ctx context.Context, c client.Client, cfg Config) (Result, error) {
	result := Result{Host: v1beta1.BackendServiceName(cfg.Run.Name)}
	if cfg.Run.Owner == nil {
		return result, fmt.Errorf("%s of %s names no owner: nothing would remove what is applied; let the operator write the file", v1beta1.RunConfigFile, cfg.Run.Name)
	}
	var now *appsv1.StatefulSet
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		now, result.Skipped, result.Why, err = putStatefulSet(ctx, c, cfg)
		return err
	})
	if err != nil || result.Skipped {
		return result, err
	}
	for _, service := range services(cfg) {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return putService(ctx, c, cfg, now.UID, service) })
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// putStatefulSet looks once, decides, and applies what it has decided.
func putStatefulSet(ctx context.Context, c client.Client, cfg Config) (now *appsv1.StatefulSet, skipped bool, why string, err error) {
	named := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Run.Name}}
	live, found, err := apply.Read(ctx, c, named)
	if err != nil {
		return nil, false, "", err
	}
	if skipped, why = freeze.Skip(cfg.Run.MCPServerGeneration, cfg.Stale, live); skipped {
		return live, true, why, nil
	}
	var owned *appsv1.StatefulSet
	if found {
		if owned, err = apply.Owned(live, v1beta1.BackendFieldManager); err != nil {
			return nil, false, why, err
		}
	}
	desired, err := statefulSet(cfg, live, owned)
	if err != nil {
		return nil, false, why, err
	}
	now, _, err = apply.Put(ctx, cfg.applier(c, cfg.owner()), live, found, desired)
	return now, false, why, err
}

// putService applies one. Those that the peer made belong to the StatefulSet,
// which belongs to the MCPServer: that is good enough, and cannot be changed by
// an apply.
func putService(ctx context.Context, c client.Client, cfg Config, set types.UID, desired *corev1.Service) error {
	live, found, err := apply.Read(ctx, c, desired)
	if err != nil {
		return err
	}
	owner := cfg.owner()
	if found {
		if controller := metav1.GetControllerOf(live); controller != nil && controller.UID == set {
			owner = *controller
		}
	}
	_, _, err = apply.Put(ctx, cfg.applier(c, owner), live, found, desired)
	return err
}

func (cfg Config) applier(c client.Client, owner metav1.OwnerReference) apply.Applier {
	return apply.Applier{Client: c, Manager: v1beta1.BackendFieldManager, Owner: owner, Adopt: cfg.adopt}
}

// adopt takes over what the peer's proxy made, which gave a StatefulSet no owner:
// it bears the server's labels, and was applied as we apply.
func (cfg Config) adopt(live client.Object) bool {
	labels := live.GetLabels()
	if labels[v1beta1.LabelName] != cfg.Run.Name || labels["app"] != cfg.Run.Name {
		return false
	}
	for _, fields := range live.GetManagedFields() {
		if fields.Manager == v1beta1.BackendFieldManager && fields.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

// owner does not block the owner's deletion: where the admission plugin
// OwnerReferencesPermissionEnforcement runs, that takes a right on MCPServers which
// a proxy does not have.
func (cfg Config) owner() metav1.OwnerReference {
	o := cfg.Run.Owner
	return metav1.OwnerReference{
		APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID), Controller: new(true),
	}
}
