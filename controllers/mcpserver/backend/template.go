package backend

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// nobody is the user that a server runs as whose image and pod template name none.
const nobody = int64(1000)

// podTemplate makes the pods of the backend: what is safe, over it what the user
// says, over that what makes it this server. It bears no generation.
func podTemplate(cfg Config) (*corev1.PodTemplateSpec, error) {
	template, err := overDefaults(cfg.PodPatch, cfg.AnyUser)
	if err != nil {
		return nil, err
	}
	template.Labels = labelsOf(cfg.Run, template.Labels)
	delete(template.Annotations, v1beta1.AnnotationGeneration) // not the user's to say
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways

	i := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1beta1.BackendContainer })
	if i < 0 {
		return nil, fmt.Errorf("the pod template deletes the container %s, which is the server: remove that", v1beta1.BackendContainer)
	}
	server := &template.Spec.Containers[i]
	server.Image = cfg.Image
	server.Args = cfg.Run.CmdArgs
	server.Env = environment(server.Env, cfg.Run.EnvVars)
	if cfg.Run.Transport == v1beta1.TransportStdio {
		server.Stdin = true
	} else {
		server.Ports = withPort(server.Ports, cfg.Run.TargetPort)
		server.Env = withHost(server.Env)
	}
	return template, nil
}

// overDefaults lays the user's pod template over one that the restricted pod
// security standard allows.
func overDefaults(user []byte, anyUser bool) (*corev1.PodTemplateSpec, error) {
	seccomp := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	id := new(nobody)
	if anyUser {
		id = nil
	}
	safe, err := json.Marshal(corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: id, RunAsGroup: id, FSGroup: id, SeccompProfile: seccomp,
		},
		Containers: []corev1.Container{{
			Name: v1beta1.BackendContainer,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the pod template's defaults: %w", err)
	}
	if len(user) > 0 {
		if safe, err = strategicpatch.StrategicMergePatch(safe, user, corev1.PodTemplateSpec{}); err != nil {
			return nil, fmt.Errorf("--k8s-pod-patch: %w", err)
		}
	}
	template := &corev1.PodTemplateSpec{}
	if err := json.Unmarshal(safe, template); err != nil {
		return nil, fmt.Errorf("--k8s-pod-patch: %w", err)
	}
	return template, nil
}

// environment is that of the user's pod template, in its order, and after it that
// of the file, sorted: a map has no order, and one that changes replaces pods. Of
// one name, the file's is taken.
func environment(template []corev1.EnvVar, file map[string]string) []corev1.EnvVar {
	env := slices.DeleteFunc(slices.Clone(template), func(v corev1.EnvVar) bool {
		_, again := file[v.Name]
		return again
	})
	for _, name := range slices.Sorted(maps.Keys(file)) {
		env = append(env, corev1.EnvVar{Name: name, Value: file[name]})
	}
	return env
}

// withHost has the server listen everywhere, if the user does not say where. Without the variable, some servers listen at
// 127.0.0.1 alone, where no proxy reaches them. The peer's proxy sets it. The file's target_host is not what is meant: it is
// where the proxy calls, and may be another for each proxy.
func withHost(env []corev1.EnvVar) []corev1.EnvVar {
	const name = "MCP_HOST"
	if slices.ContainsFunc(env, func(v corev1.EnvVar) bool { return v.Name == name }) {
		return env
	}
	return append(env, corev1.EnvVar{Name: name})
}

// withPort adds the port of the server, if the user's pod template does not have it.
func withPort(ports []corev1.ContainerPort, port int32) []corev1.ContainerPort {
	for i := range ports {
		if ports[i].Protocol == "" {
			ports[i].Protocol = corev1.ProtocolTCP // a part of its key in the API server
		}
		if ports[i].ContainerPort == port && ports[i].Protocol == corev1.ProtocolTCP {
			port = 0
		}
	}
	if port == 0 {
		return ports
	}
	return append(ports, corev1.ContainerPort{ContainerPort: port, Protocol: corev1.ProtocolTCP})
}
