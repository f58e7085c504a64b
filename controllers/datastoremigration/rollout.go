package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

// components looks at Calico's own programs, in their namespace; it writes nothing.
type components struct {
	cluster

	namespace string
}

const (
	apiGroupEnv   = "CALICO_API_GROUP"
	apiGroupValue = "projectcalico.org/v3"
)

// Calico's components, in the order in which they are named to people.
const (
	calicoNode            = "calico-node"
	calicoTypha           = "calico-typha"
	calicoKubeControllers = "calico-kube-controllers"

	// installCNI is an init container of calico-node.
	installCNI = "install-cni"
)

func observeRolloutRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), cniRights(), rule("get", appsv1.GroupName, "daemonsets", calicoNode), rule("get", appsv1.GroupName, "deployments", calicoTypha, calicoKubeControllers))
}

// wasVerified: by this migration, by a person, or by an earlier one, which could not have opened v3 else. What that
// one has verified is not known any more, so that a clean-up asks a person.
func (r *components) wasVerified(ctx context.Context, dm *migration) (bool, error) {
	if dm.Status.Verified != nil || isWaived(dm, waiveV1Changed) {
		return true, nil
	}
	d, err := r.datastore(ctx)
	by := d.migratedBy()
	return err == nil && by != "" && by != dm.UID, err
}

// observeRollout lists the components that do not run with v3 yet, and where they are. calico-node
// must be there; the others only count where they are installed. Nothing is complete
// that was never verified, by whatever way a machine of the user's has come here.
func (r *components) observeRollout(ctx context.Context, sc *scope) (outputs, error) {
	if proved, err := r.wasVerified(ctx, sc.Object); err != nil || !proved {
		return nil, cmp.Or(err, fsm.Wait("v1 and v3 were never verified to hold the same (there is no status.verified): compare them yourself, then set the annotation %s on this object",
			waiverFor(sc.Object, waiveV1Changed)))
	}
	seen := rollout{pending: []string{}, unset: []string{}, rolling: []string{}, restart: []string{}}
	node := &appsv1.DaemonSet{}
	found, err := r.component(ctx, calicoNode, node)
	switch {
	case err != nil:
		return nil, err
	case !found:
		seen.pending = append(seen.pending, fmt.Sprintf("%s (DaemonSet not found in namespace %s; is --calico-namespace right?)", calicoNode, r.namespace))
	default:
		seen.add("daemonset", calicoNode, &node.Spec.Template, daemonSetRolledOut(node))
		c, template, err := r.cniTemplateOf(ctx, &node.Spec.Template)
		if err != nil {
			return nil, err
		}
		if c != nil {
			seen.addCNI(node, c, template, isWaived(sc.Object, waiveCNI), waiverFor(sc.Object, waiveCNI))
		}
	}
	for _, name := range []string{calicoTypha, calicoKubeControllers} {
		deployment := &appsv1.Deployment{}
		found, err := r.component(ctx, name, deployment)
		if err != nil {
			return nil, err
		}
		if found {
			seen.add("deployment", name, &deployment.Spec.Template, deploymentRolledOut(deployment))
		}
	}
	svc, err := r.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if isAggregated(svc) {
		seen.pending = append(seen.pending, fmt.Sprintf("APIService %s (points to a server again, which shows v1: stop what applies it, and delete it; Kubernetes makes the one for the CRDs)", apiServiceName))
	}
	return outputs{"pending": seen.pending, "unset": seen.unset, "rolling": seen.rolling, "restart": seen.restart,
		"configMap": seen.configMap, "configMapHasGroup": seen.configMapHasGroup, "namespace": r.namespace}, nil
}

func (r *components) component(ctx context.Context, name string, obj client.Object) (bool, error) {
	obj, err := read(ctx, r.client, types.NamespacedName{Namespace: r.namespace, Name: name}, obj, r.namespace+"/"+name)
	return obj != nil, err
}

// rollout is what is not there yet.
type rollout struct {
	// pending says it for people.
	pending []string
	// unset are the components that are not told to use v3, rolling those that are, and are
	// not rolled out, restart those that are, before what they read was changed: as kubectl names them.
	unset, rolling, restart []string
	// configMap has to be changed, and names a group already.
	configMap         string
	configMapHasGroup bool
}

func (r *rollout) add(resource, name string, pod *corev1.PodTemplateSpec, behind string) {
	component, why := resource+"/"+name, behind
	switch {
	case !usesV3(name, pod):
		why, r.unset = "variable not set", append(r.unset, component)
	case behind == "":
		return
	default:
		r.rolling = append(r.rolling, component)
	}
	r.pending = append(r.pending, fmt.Sprintf("%s (%s)", name, why))
}

// usesV3 looks at the container that bears the component's name, or at all of
// them when none does: a sidecar's variable says nothing about Calico.
func usesV3(name string, pod *corev1.PodTemplateSpec) bool {
	named := 0
	all := len(pod.Spec.Containers) > 0
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			named++
			if !hasV3Env(c) {
				return false
			}
		}
		all = all && hasV3Env(c)
	}
	return named > 0 || all
}

// hasV3Env looks from the end: of two variables of one name, the last one counts.
func hasV3Env(c corev1.Container) bool {
	for _, e := range slices.Backward(c.Env) {
		if e.Name == apiGroupEnv {
			return strings.EqualFold(e.Value, apiGroupValue)
		}
	}
	return false
}

func daemonSetRolledOut(d *appsv1.DaemonSet) string {
	st := d.Status
	if st.ObservedGeneration != d.Generation {
		return "its change is not observed yet"
	}
	if st.UpdatedNumberScheduled != st.DesiredNumberScheduled || st.NumberUnavailable != 0 {
		return fmt.Sprintf("%d of %d pods updated, %d unavailable", st.UpdatedNumberScheduled, st.DesiredNumberScheduled, st.NumberUnavailable)
	}
	return ""
}

func deploymentRolledOut(d *appsv1.Deployment) string {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	st := d.Status
	if st.ObservedGeneration != d.Generation {
		return "its change is not observed yet"
	}
	if st.UpdatedReplicas != want || st.Replicas != want || st.AvailableReplicas != want {
		return fmt.Sprintf("%d of %d pods updated, %d available", st.UpdatedReplicas, want, st.AvailableReplicas)
	}
	return ""
}
