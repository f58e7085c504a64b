package mcpserver

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// proxyUser is the uid and gid of the proxy.
const proxyUser = 1000

// startSeconds is how long a proxy may take to answer at all; it does so before
// it waits for its backend.
const startSeconds = 150

// What ToolHive's operator gives its proxyrunner: it answers once its server is ready, and begins anew where that takes longer.
const (
	theirStartSeconds = 90
	theirReadyAfter   = 5
)

// deployment is the proxy without its pods. live and applied are the number of
// proxies that there is now, and the one that we have set; nil for none.
func deployment(srv *server, live, applied *int32) *appsv1.Deployment {
	overrides := proxyOverrides(&srv.Spec)
	d := &appsv1.Deployment{ObjectMeta: objectMeta(srv, srv.Name)}
	d.Labels = over(overrides.Labels, d.Labels)
	d.Annotations = overrides.Annotations
	d.Spec = appsv1.DeploymentSpec{
		Replicas: wantedReplicas(&srv.Spec, live, applied),
		Selector: &metav1.LabelSelector{MatchLabels: v1beta1.ProxyLabels(srv.Name)},
		Strategy: strategy(&srv.Spec),
	}
	return d
}

// wantedReplicas is nil where the number is another's to choose. One that was ours
// stays until another has chosen: without it, the API server would make it 1. Only
// one proxy can be attached to a stdio server.
func wantedReplicas(s *v1beta1.MCPServerSpec, live, applied *int32) *int32 {
	want := s.Replicas
	if want == nil && applied != nil && *applied > 0 {
		want = applied
	}
	if n := cmp.Or(want, live); transport(s) == v1beta1.TransportStdio && n != nil && *n > 1 {
		return new(int32(1))
	}
	return want
}

// strategy never has two proxies attached to one stdio server. All is said, so
// that what does not fit the other type goes with it.
func strategy(s *v1beta1.MCPServerSpec) appsv1.DeploymentStrategy {
	if transport(s) == v1beta1.TransportStdio {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	quarter := intstr.FromString("25%")
	return appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &quarter, MaxUnavailable: &quarter},
	}
}

// proxyPods are the proxy's pods, without the generation.
func (s Settings) proxyPods(srv *server, podPatch, checksum string, peers *toolhive.Proxy) (corev1.PodTemplateSpec, error) {
	overrides := proxyOverrides(&srv.Spec)
	metadata := v1beta1.MetadataOverrides{}
	if overrides.PodTemplateMetadataOverrides != nil {
		metadata = *overrides.PodTemplateMetadataOverrides
	}
	container := s.proxyContainer(srv, podPatch)
	if err := setProxyResources(&container, &srv.Spec, s.ProxyResources); err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	pod := corev1.PodSpec{
		ServiceAccountName:            v1beta1.ProxyRBACName(srv.Name),
		AutomountServiceAccountToken:  new(true),
		TerminationGracePeriodSeconds: new(int64(30)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: s.user(), RunAsGroup: s.user(), FSGroup: s.user(),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		NodeSelector: overrides.NodeSelector, Tolerations: overrides.Tolerations, Affinity: overrides.Affinity,
		ImagePullSecrets: pullSecrets(&srv.Spec),
		Containers:       []corev1.Container{container},
		Volumes: []corev1.Volume{{Name: "runconfig", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: v1beta1.RunConfigName(srv.Name)}}}}},
	}
	annotations := map[string]string{v1beta1.AnnotationRunConfigChecksum: checksum}
	if peers != nil {
		addExtras(&pod, peers)
		setTheirTimes(&pod.Containers[0], &srv.Spec)
		if peers.CopiedSum != "" {
			annotations[v1beta1.AnnotationCopiedBundles] = peers.CopiedSum
		}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      over(metadata.Labels, v1beta1.ProxyLabels(srv.Name)),
			Annotations: over(metadata.Annotations, annotations),
		},
		Spec: pod,
	}, nil
}

// addExtras adds what the file of ToolHive's proxyrunner speaks of. A secret goes over
// what the user sets, since it is the only one; any other variable is the user's to say.
func addExtras(pod *corev1.PodSpec, peers *toolhive.Proxy) {
	c := &pod.Containers[0]
	for _, more := range peers.Env {
		more.Value = literal(more.Value)
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == more.Name })
		switch {
		case i < 0:
			c.Env = append(c.Env, more)
		case more.ValueFrom != nil:
			c.Env[i] = more
		}
	}
	slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	c.VolumeMounts = append(c.VolumeMounts, peers.Mounts...)
	pod.Volumes = append(pod.Volumes, peers.Volumes...)
}

// setTheirTimes are those of ToolHive's operator; but the proxy of a stdio server is ready as soon as it answers, since no
// other serves meanwhile: see strategy.
func setTheirTimes(c *corev1.Container, s *v1beta1.MCPServerSpec) {
	c.StartupProbe.FailureThreshold = theirStartSeconds / c.StartupProbe.PeriodSeconds
	if transport(s) != v1beta1.TransportStdio {
		c.ReadinessProbe.InitialDelaySeconds = theirReadyAfter
	}
}

// setProxyResources sets those of the proxy. Of a resource that the spec names, nothing
// of the default is left: a request above it would be one above the limit.
func setProxyResources(container *corev1.Container, s *v1beta1.MCPServerSpec, defaults corev1.ResourceRequirements) error {
	wanted := proxyOverrides(s).Resources
	container.Resources = *defaults.DeepCopy()
	for name, named := range map[corev1.ResourceName]bool{
		corev1.ResourceCPU:    wanted.Requests.CPU+wanted.Limits.CPU != "",
		corev1.ResourceMemory: wanted.Requests.Memory+wanted.Limits.Memory != "",
	} {
		if named {
			delete(container.Resources.Requests, name)
			delete(container.Resources.Limits, name)
		}
	}
	return setResources(container, "spec.resourceOverrides.proxyDeployment.resources", wanted)
}

// user is that of the proxy, and its groups; nil where the cluster chooses.
func (s Settings) user() *int64 {
	if s.AnyUser {
		return nil
	}
	return new(int64(proxyUser))
}

func (s Settings) proxyContainer(srv *server, podPatch string) corev1.Container {
	return corev1.Container{
		Name: v1beta1.ProxyContainer, Image: s.ProxyImage,
		Args:         []string{"run", "--k8s-pod-patch=" + literal(podPatch), literal(srv.Spec.Image)},
		Env:          s.proxyEnv(&srv.Spec),
		Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: proxyPort(&srv.Spec), Protocol: corev1.ProtocolTCP}},
		VolumeMounts: []corev1.VolumeMount{{Name: "runconfig", MountPath: "/etc/runconfig", ReadOnly: true}},
		SecurityContext: &corev1.SecurityContext{
			Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			RunAsNonRoot: new(true), RunAsUser: s.user(), RunAsGroup: s.user(),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		StartupProbe:   health(corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: 3, FailureThreshold: startSeconds / 5}),
		LivenessProbe:  health(corev1.Probe{InitialDelaySeconds: 30, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}),
		ReadinessProbe: health(corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: 3, FailureThreshold: 3}),
	}
}

func health(p corev1.Probe) *corev1.Probe {
	p.HTTPGet = &corev1.HTTPGetAction{Path: v1beta1.HealthPath, Port: intstr.FromString("http")}
	return &p
}

// literal is what the kubelet makes text of: of an argument or the value of a variable, it takes "$(NAME)" for a variable of
// the proxy, and "$$" for an escape. In what the proxy passes on, both are the server's.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// proxyEnv is sorted by name. What the user sets wins over a default, and nothing
// over the generation. It may refer to other variables of the proxy, as in any container.
func (s Settings) proxyEnv(spec *v1beta1.MCPServerSpec) []corev1.EnvVar {
	values := map[string]string{
		"XDG_CONFIG_HOME": "/tmp", "HOME": "/tmp", "TOOLHIVE_RUNTIME": "kubernetes", "UNSTRUCTURED_LOGS": "false",
	}
	if s.AnyUser {
		values[v1beta1.EnvOpenShift] = "true"
	}
	for _, e := range proxyOverrides(spec).Env {
		values[e.Name] = e.Value
	}
	delete(values, v1beta1.EnvGeneration)
	env := []corev1.EnvVar{{Name: v1beta1.EnvGeneration, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['" + v1beta1.AnnotationGeneration + "']"}}}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, corev1.EnvVar{Name: name, Value: values[name]})
	}
	slices.SortFunc(env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return env
}

// proxyOverrides are what the spec adds to the Deployment, empty if nothing.
func proxyOverrides(s *v1beta1.MCPServerSpec) v1beta1.ProxyDeploymentOverrides {
	if s.ResourceOverrides == nil || s.ResourceOverrides.ProxyDeployment == nil {
		return v1beta1.ProxyDeploymentOverrides{}
	}
	return *s.ResourceOverrides.ProxyDeployment
}

// over lays what must be over what the user adds.
func over(users, must map[string]string) map[string]string {
	merged := maps.Clone(must)
	for key, value := range users {
		if _, taken := must[key]; !taken {
			merged[key] = value
		}
	}
	return merged
}

// objectMeta is the metadata of what is made for a server; its owner reference is
// set where it is applied.
func objectMeta(srv *server, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: srv.Namespace, Labels: v1beta1.ProxyLabels(srv.Name)}
}
