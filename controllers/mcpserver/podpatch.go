package mcpserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// podPatch is what the proxy lays under the backend's pods: the pod template of
// the spec, and the fields of the spec that are about the backend's pods.
func podPatch(srv *server) (string, error) {
	pod, err := podTemplate(srv.Spec.PodTemplateSpec)
	if err != nil {
		return "", err
	}
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = v1beta1.BackendServiceAccountName(srv.Name), ""
	if srv.Spec.ServiceAccount != nil {
		pod.Spec.ServiceAccountName = *srv.Spec.ServiceAccount
	}
	container := backendContainer(&pod.Spec)
	addSecrets(container, srv.Spec.Secrets)
	addVolumes(&pod.Spec, container, srv.Spec.Volumes)
	if err := setResources(container, "spec.resources", srv.Spec.Resources); err != nil {
		return "", err
	}
	data, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("encode the pod template: %w", err)
	}
	return string(data), nil
}

// podTemplate decodes spec.podTemplateSpec; a field that no pod template has is an
// error, since it would be lost.
func podTemplate(raw *runtime.RawExtension) (*corev1.PodTemplateSpec, error) {
	pod := &corev1.PodTemplateSpec{}
	if raw == nil || len(raw.Raw) == 0 {
		return pod, nil
	}
	strict, err := kjson.UnmarshalStrict(raw.Raw, pod)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("spec.podTemplateSpec is not a pod template: %s", texts(err))
	}
	seen := map[string]bool{}
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == "" || seen[c.Name] {
			return nil, fmt.Errorf("spec.podTemplateSpec is not a pod template: container %d needs a name of its own; %q is the MCP server's",
				i+1, v1beta1.BackendContainer)
		}
		seen[c.Name] = true
	}
	return pod, nil
}

// backendContainer is the container of the MCP server, which is added if missing.
func backendContainer(pod *corev1.PodSpec) *corev1.Container {
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == v1beta1.BackendContainer })
	if i < 0 {
		pod.Containers = append(pod.Containers, corev1.Container{Name: v1beta1.BackendContainer})
		i = len(pod.Containers) - 1
	}
	return &pod.Containers[i]
}

// addSecrets makes variables of keys of Secrets.
func addSecrets(container *corev1.Container, secrets []v1beta1.SecretRef) {
	for _, s := range secrets {
		name := secretEnvName(s)
		container.Env = slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		container.Env = append(container.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: s.Name}, Key: s.Key}}})
	}
}

func secretEnvName(s v1beta1.SecretRef) string { return cmp.Or(s.TargetEnvName, s.Key) }

// addVolumes mounts directories of the node.
func addVolumes(pod *corev1.PodSpec, container *corev1.Container, volumes []v1beta1.Volume) {
	for _, v := range volumes {
		pod.Volumes = slices.DeleteFunc(pod.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name })
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: v.Name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: v.HostPath}}})
		container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == v.MountPath })
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly})
	}
}

// setResources sets those that the spec names at path. The error tells all that is wrong.
func setResources(container *corev1.Container, path string, wanted v1beta1.ResourceRequirements) error {
	r := &container.Resources
	if err := errors.Join(
		setQuantities(&r.Limits, path+".limits", wanted.Limits),
		setQuantities(&r.Requests, path+".requests", wanted.Requests),
	); err != nil {
		return err
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if !limit.IsZero() && request.Cmp(limit) > 0 {
			return fmt.Errorf("%s.requests.%s is %s, more than the limit of %s: lower it", path, name, &request, &limit)
		}
	}
	return nil
}

// setQuantities lays the quantities of the spec over those of the pod template.
func setQuantities(on *corev1.ResourceList, path string, wanted v1beta1.ResourceList) error {
	var errs []error
	for _, r := range []struct {
		name corev1.ResourceName
		text string
	}{{corev1.ResourceCPU, wanted.CPU}, {corev1.ResourceMemory, wanted.Memory}} {
		if r.text == "" {
			continue
		}
		q, err := resource.ParseQuantity(r.text)
		if err != nil || q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("%s.%s is %q, which is not a quantity: write one such as 500m or 64Mi", path, r.name, r.text))
			continue
		}
		if *on == nil {
			*on = corev1.ResourceList{}
		}
		(*on)[r.name] = q
	}
	return errors.Join(errs...)
}
