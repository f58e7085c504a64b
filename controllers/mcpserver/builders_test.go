package mcpserver

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func fetch(change func(*v1beta1.MCPServerSpec)) *server {
	srv := &server{ObjectMeta: metav1.ObjectMeta{Name: "fetch", Namespace: "demo", UID: "u-1", Generation: 7}, Spec: httpServer}
	if change != nil {
		change(&srv.Spec)
	}
	return srv
}

func TestRunConfig(t *testing.T) {
	labels := func(transport string) map[string]string {
		return map[string]string{"toolhive": "true", "toolhive-name": "fetch", "toolhive-basename": "fetch", "toolhive-transport": transport}
	}
	base := func(transport, mode string, change func(*runconfig.RunConfig)) *runconfig.RunConfig {
		rc := &runconfig.RunConfig{
			SchemaVersion: "v0.1.0", Name: "fetch", ContainerName: "fetch", BaseName: "fetch", Image: "example.org/fetch:1",
			Transport: transport, ProxyMode: mode, Port: 8080, ContainerLabels: labels(transport),
			EnvVars: map[string]string{"MCP_TRANSPORT": transport},
			Owner:   &runconfig.Owner{APIVersion: "toolhive.stacklok.dev/v1beta1", Kind: "MCPServer", Name: "fetch", UID: "u-1"},
		}
		change(rc)
		return rc
	}
	for name, test := range map[string]struct {
		why    string
		change func(*v1beta1.MCPServerSpec)
		want   *runconfig.RunConfig
	}{
		"stdio is the default": {"so says the CRD, and an older one may not fill it in",
			func(s *v1beta1.MCPServerSpec) { s.Transport = "" },
			base("stdio", "streamable-http", func(*runconfig.RunConfig) {})},
		"stdio, sse to clients": {"the mode is the user's where the proxy translates",
			func(s *v1beta1.MCPServerSpec) { s.Transport, s.ProxyMode, s.MCPPort = "stdio", "sse", 9000 },
			base("stdio", "sse", func(*runconfig.RunConfig) {})},
		"http": {"the mode follows the transport where the proxy does not translate",
			func(s *v1beta1.MCPServerSpec) { s.ProxyMode = "sse" },
			base("streamable-http", "streamable-http", func(rc *runconfig.RunConfig) {
				rc.TargetPort = 8080
				rc.EnvVars = map[string]string{"MCP_TRANSPORT": "streamable-http", "MCP_PORT": "8080", "FASTMCP_PORT": "8080"}
			})},
		"all": {"what the user says of a variable wins",
			func(s *v1beta1.MCPServerSpec) {
				s.Transport, s.ProxyPort, s.MCPPort, s.Args, s.BackendReplicas = "sse", 8081, 9000, []string{"-v"}, new(int32(0))
				s.Env = []v1beta1.EnvVar{{Name: "MCP_PORT", Value: "1"}, {Name: "EMPTY"}}
				s.TrustProxyHeaders, s.EndpointPrefix = true, "/a"
				s.MaxRequestBodySize, s.ProxyReadTimeout = 1<<20, "5s"
			},
			base("sse", "sse", func(rc *runconfig.RunConfig) {
				rc.Port, rc.TargetPort, rc.CmdArgs, rc.TrustProxyHeaders, rc.EndpointPrefix = 8081, 9000, []string{"-v"}, true, "/a"
				rc.MaxRequestBodySize, rc.ProxyReadTimeout = 1<<20, "5s"
				rc.EnvVars = map[string]string{"MCP_TRANSPORT": "sse", "MCP_PORT": "1", "FASTMCP_PORT": "9000", "EMPTY": ""}
				rc.ScalingConfig = &runconfig.ScalingConfig{BackendReplicas: new(int32(0))}
			})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, runConfig(fetch(test.change))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestPodPatch(t *testing.T) {
	pod := func(c corev1.Container, change func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
		c.Name = "mcp"
		p := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: "fetch-sa", Containers: []corev1.Container{c}}}
		if change != nil {
			change(p)
		}
		return p
	}
	secret := func(name, key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
	}
	hostPath := func(path string) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}
	for name, test := range map[string]struct {
		why    string
		change func(*v1beta1.MCPServerSpec)
		want   *corev1.PodTemplateSpec
	}{
		"nothing is said": {"the pods need an account at least", nil, pod(corev1.Container{}, nil)},
		"own account": {"a user's account has the rights that its server needs",
			func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = new("own") },
			pod(corev1.Container{}, func(p *corev1.PodTemplateSpec) { p.Spec.ServiceAccountName = "own" })},
		"account of the template": {"the account that is made for the server wins over one that is hidden in the template",
			template(`{"spec":{"serviceAccountName":"other"}}`), pod(corev1.Container{}, nil)},
		"sidecar": {"other containers stay as they are",
			template(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"side","image":"s"}]}}`),
			pod(corev1.Container{}, func(p *corev1.PodTemplateSpec) {
				p.Labels = map[string]string{"a": "b"}
				p.Spec.Containers = []corev1.Container{{Name: "side", Image: "s"}, {Name: "mcp"}}
			})},
		"secrets": {"they win over the variable of the template that they replace; the key names the variable if nothing else does",
			func(s *v1beta1.MCPServerSpec) {
				template(`{"spec":{"containers":[{"name":"mcp","env":[{"name":"TOKEN","value":"old"},{"name":"KEPT","value":"1"}]}]}}`)(s)
				s.Secrets = []v1beta1.SecretRef{{Name: "a", Key: "token", TargetEnvName: "TOKEN"}, {Name: "b", Key: "OTHER"}}
			},
			pod(corev1.Container{Env: []corev1.EnvVar{{Name: "KEPT", Value: "1"},
				{Name: "TOKEN", ValueFrom: secret("a", "token")}, {Name: "OTHER", ValueFrom: secret("b", "OTHER")}}}, nil)},
		"volumes": {"they are the server's, not the proxy's; those of the template stay",
			func(s *v1beta1.MCPServerSpec) {
				template(`{"spec":{"volumes":[{"name":"tmp","emptyDir":{}},{"name":"data","emptyDir":{}}],"containers":[{"name":"mcp","volumeMounts":[{"name":"tmp","mountPath":"/tmp"},{"name":"data","mountPath":"/data"}]}]}}`)(s)
				s.Volumes = []v1beta1.Volume{{Name: "data", HostPath: "/srv", MountPath: "/data", ReadOnly: true}}
			},
			pod(corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}, {Name: "data", MountPath: "/data", ReadOnly: true}}},
				func(p *corev1.PodTemplateSpec) {
					p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "data", VolumeSource: hostPath("/srv")}}
				})},
		"resources": {"they are the server's, not the proxy's; what the spec does not name is the template's",
			func(s *v1beta1.MCPServerSpec) {
				template(`{"spec":{"containers":[{"name":"mcp","resources":{"limits":{"cpu":"2","nvidia.com/gpu":"1"}}}]}}`)(s)
				s.Resources = v1beta1.ResourceRequirements{Limits: v1beta1.ResourceList{CPU: "1000m"}, Requests: v1beta1.ResourceList{CPU: "1", Memory: "64Mi"}}
			},
			pod(corev1.Container{Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("64Mi")}}}, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := podPatch(fetch(test.change))
			if err != nil {
				t.Fatal(err)
			}
			got := &corev1.PodTemplateSpec{}
			if err := json.Unmarshal([]byte(text), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// TestProxyPods holds the whole of what a proxy's pod is made of.
func TestProxyPods(t *testing.T) {
	srv := fetch(func(s *v1beta1.MCPServerSpec) {
		s.ProxyPort = 9090
		s.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{
			PodTemplateMetadataOverrides: &v1beta1.MetadataOverrides{
				Labels:      map[string]string{"team": "a", "app": "stolen"},
				Annotations: map[string]string{"note": "n", v1beta1.AnnotationRunConfigChecksum: "stolen"}},
			Env:          []v1beta1.EnvVar{{Name: "HOME", Value: "/home"}, {Name: "A", Value: "1"}, {Name: v1beta1.EnvGeneration, Value: "stolen"}},
			NodeSelector: map[string]string{"pool": "warm"}, Tolerations: []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
		}}
	})
	got, err := Settings{ProxyImage: "example.org/proxy:1"}.proxyPods(srv, `{"spec":{}}`, "sum", nil)
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		Labels, Annotations map[string]string
		Account             string
		Args                []string
		Env                 []corev1.EnvVar
		Ports               []corev1.ContainerPort
		NonRoot, ReadOnly   bool
		Seccomp             corev1.SeccompProfileType
		StartSeconds        int32
		LiveAfter           int32
		Grace               int64
		NodeSelector        map[string]string
		Tolerations         []corev1.Toleration
		Affinity            *corev1.Affinity
	}
	c := got.Spec.Containers[0]
	generation := corev1.EnvVar{Name: "THV_MCPSERVER_GENERATION", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['toolhive.stacklok.dev/mcpserver-generation']"}}}
	labels := v1beta1.ProxyLabels("fetch")
	labels["team"] = "a"
	want := summary{
		Labels:      labels,
		Annotations: map[string]string{"note": "n", v1beta1.AnnotationRunConfigChecksum: "sum"},
		Account:     "fetch-proxy-runner",
		Args:        []string{"run", `--k8s-pod-patch={"spec":{}}`, "example.org/fetch:1"},
		Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "HOME", Value: "/home"}, generation,
			{Name: "TOOLHIVE_RUNTIME", Value: "kubernetes"}, {Name: "UNSTRUCTURED_LOGS", Value: "false"}, {Name: "XDG_CONFIG_HOME", Value: "/tmp"}},
		Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 9090, Protocol: "TCP"}},
		NonRoot: true, ReadOnly: true, Seccomp: "RuntimeDefault", StartSeconds: 150, LiveAfter: 30, Grace: 30,
		NodeSelector: map[string]string{"pool": "warm"}, Tolerations: []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
	}
	if diff := cmp.Diff(want, summary{
		Labels: got.Labels, Annotations: got.Annotations, Account: got.Spec.ServiceAccountName, Args: c.Args, Env: c.Env, Ports: c.Ports,
		NonRoot: *got.Spec.SecurityContext.RunAsNonRoot, ReadOnly: *c.SecurityContext.ReadOnlyRootFilesystem,
		Seccomp: ptr.Deref(c.SecurityContext.SeccompProfile, corev1.SeccompProfile{}).Type, LiveAfter: c.LivenessProbe.InitialDelaySeconds,
		StartSeconds: c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold, Grace: *got.Spec.TerminationGracePeriodSeconds,
		NodeSelector: got.Spec.NodeSelector, Tolerations: got.Spec.Tolerations, Affinity: got.Spec.Affinity,
	}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPullSecrets: where the spec names secrets for a private registry, the server's image comes from there as well, and
// its pods have no other place for them than their account.
func TestPullSecrets(t *testing.T) {
	srv := fetch(func(s *v1beta1.MCPServerSpec) {
		s.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{ImagePullSecrets: []v1beta1.LocalObjectReference{{Name: "pull"}}}}
	})
	pods, err := Settings{}.proxyPods(srv, "{}", "sum", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.LocalObjectReference{{Name: "pull"}}
	for of, got := range map[string][]corev1.LocalObjectReference{
		"the proxy's pods": pods.Spec.ImagePullSecrets, "the proxy's account": proxyAccount(srv).ImagePullSecrets, "the server's account": backendAccount(srv).ImagePullSecrets,
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %s (-want +got):\n%s", of, diff)
		}
	}
}

// A deletion in the foreground waits for what was made, as with ToolHive's operator; some API servers let nobody say so
// without a right to the finalizers.
func TestOwnerIsBlocked(t *testing.T) {
	if owner := ownerReference(fetch(nil)); !ptr.Deref(owner.BlockOwnerDeletion, false) {
		t.Errorf("owner reference %v does not block the owner's deletion", owner)
	}
	for _, proxy := range Flavours {
		if !slices.ContainsFunc(ensureWorkloadRights(proxy), func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "mcpservers/finalizers") && slices.Contains(rule.Verbs, "update")
		}) {
			t.Errorf("with proxy %s the right to say so is missing", proxy)
		}
	}
}

// A namespace with a quota takes no pod of which a container says nothing.
func TestProxyResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	defaults := corev1.ResourceRequirements{Requests: list("50m", "64Mi"), Limits: list("1", "512Mi")}
	for name, c := range map[string]struct {
		why  string
		spec v1beta1.ResourceRequirements
		want corev1.ResourceRequirements
	}{
		"none":  {"they are the manager's", v1beta1.ResourceRequirements{}, defaults},
		"both":  {"they are the server's", v1beta1.ResourceRequirements{Requests: v1beta1.ResourceList{CPU: "1", Memory: "1Gi"}, Limits: v1beta1.ResourceList{CPU: "2", Memory: "2Gi"}}, corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}},
		"large": {"it is no error that the default limit is lower", v1beta1.ResourceRequirements{Requests: v1beta1.ResourceList{Memory: "1Gi"}}, corev1.ResourceRequirements{Requests: list("50m", "1Gi"), Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}},
	} {
		srv := fetch(func(s *v1beta1.MCPServerSpec) {
			s.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{Resources: c.spec}}
		})
		pods, err := Settings{ProxyResources: defaults}.proxyPods(srv, "{}", "sum", nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, pods.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}

// Attached, one reads and writes what a program reads and writes: only where that is how
// a server speaks, and only to its own pods.
func TestOnlyProxiesOfStdioServersAttach(t *testing.T) {
	type right struct{ Verbs, Names []string }
	for name, c := range map[string]struct {
		change func(*v1beta1.MCPServerSpec)
		want   []right
	}{
		"http":            {nil, nil},
		"stdio":           {func(s *v1beta1.MCPServerSpec) { s.Transport = "stdio" }, []right{{[]string{"create", "get"}, []string{"fetch-0"}}}},
		"stdio, two pods": {func(s *v1beta1.MCPServerSpec) { s.Transport, s.BackendReplicas = "", new(int32(2)) }, []right{{[]string{"create", "get"}, []string{"fetch-0", "fetch-1"}}}},
		"stopped":         {func(s *v1beta1.MCPServerSpec) { s.Transport, s.BackendReplicas = "", new(int32(0)) }, []right{{[]string{"create", "get"}, []string{"fetch-0"}}}},
	} {
		var got []right
		for _, rule := range role(Phasegate, fetch(c.change)).Rules {
			if slices.Contains(rule.Resources, "pods/attach") {
				got = append(got, right{rule.Verbs, rule.ResourceNames})
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
