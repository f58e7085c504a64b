package v1beta1

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
)

// MCPServerSpec is what a user asks for. The API server drops fields that are not named here, and says so
// (kubectl refuses them); the CRD of a newer ToolHive may keep them: see Unread.
//
// Lists and texts that rules read are bounded, far above what manifests have, so
// that the API server knows what the rules cost.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!has(self.authzConfig) || !has(self.authzConfigRef)",message="spec.authzConfig and spec.authzConfigRef exclude each other: keep one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.rateLimiting) || has(self.sessionStorage) && self.sessionStorage.provider == 'redis'",message="spec.rateLimiting needs spec.sessionStorage with provider redis: set it, or remove rateLimiting"
type MCPServerSpec struct {
	// Image of the MCP server.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Transport that the MCP server speaks.
	// +kubebuilder:validation:Enum=stdio;streamable-http;sse
	// +kubebuilder:default=stdio
	// +optional
	Transport string `json:"transport,omitempty"`
	// ProxyMode is what clients speak to the proxy of a stdio server; with another
	// transport, the proxy speaks what the server does.
	// +kubebuilder:validation:Enum=sse;streamable-http
	// +kubebuilder:default=streamable-http
	// +optional
	ProxyMode string `json:"proxyMode,omitempty"`
	// ProxyPort is where the proxy listens.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=8080
	// +optional
	ProxyPort int32 `json:"proxyPort,omitempty"`
	// MCPPort is where a server with an HTTP transport listens; 8080 if unset.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MCPPort int32 `json:"mcpPort,omitempty"`
	// Args of the MCP server.
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`
	// Env of the MCP server.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.value.contains('\\n'))",message="a value of spec.env must be one line: hand longer texts over with spec.secrets"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.value.contains('\\r'))",message="a value of spec.env must be one line: hand longer texts over with spec.secrets"
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// Volumes of the MCP server: directories of the node.
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	// +optional
	Volumes []Volume `json:"volumes,omitempty"`
	// Resources of the MCP server.
	// +optional
	Resources ResourceRequirements `json:"resources,omitempty"`
	// Secrets that become environment variables of the MCP server.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +listMapKey=key
	// +optional
	Secrets []SecretRef `json:"secrets,omitempty"`
	// ServiceAccount of the MCP server's pods; NAME-sa, which is created, if unset.
	// +optional
	ServiceAccount *string `json:"serviceAccount,omitempty"`
	// PermissionProfile is accepted for compatibility; on Kubernetes it has no effect.
	// +optional
	PermissionProfile *PermissionProfileRef `json:"permissionProfile,omitempty"`
	// PodTemplateSpec is laid under the pods of the MCP server, a PodTemplateSpec
	// whose container named mcp is the server.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	PodTemplateSpec *runtime.RawExtension `json:"podTemplateSpec,omitempty"`
	// ResourceOverrides change what the proxy's objects bear.
	// +optional
	ResourceOverrides *ResourceOverrides `json:"resourceOverrides,omitempty"`
	// Replicas of the proxy. Unset: an autoscaler decides, 1 at first. 0 stops the server.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// BackendReplicas of the MCP server, over which sessions are spread; one is used with stdio. Unset: an
	// autoscaler decides, 1 at first.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BackendReplicas *int32 `json:"backendReplicas,omitempty"`
	// SessionAffinity of the Service in front of the proxy.
	// +kubebuilder:validation:Enum=ClientIP;None
	// +kubebuilder:default=ClientIP
	// +optional
	SessionAffinity string `json:"sessionAffinity,omitempty"`
	// TrustProxyHeaders makes the proxy believe X-Forwarded-* headers.
	// +kubebuilder:default=false
	// +optional
	TrustProxyHeaders bool `json:"trustProxyHeaders,omitempty"`
	// EndpointPrefix is put before the path that an sse endpoint event names.
	// +optional
	EndpointPrefix string `json:"endpointPrefix,omitempty"`
	// MaxRequestBodySize is how long a request may be, in bytes; 8 MiB if 0 or unset. Our
	// own proxy takes 24 MiB at most.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRequestBodySize int64 `json:"maxRequestBodySize,omitempty"`
	// ProxyReadTimeout is how long a request may take to come in, such as 1m; 30s if
	// unset.
	// +kubebuilder:validation:Format=duration
	// +optional
	ProxyReadTimeout string `json:"proxyReadTimeout,omitempty"`
	// SessionStorage says where sessions would be kept.
	// +optional
	SessionStorage *SessionStorage `json:"sessionStorage,omitempty"`
	// ToolConfigRef names an MCPToolConfig of the same namespace.
	// +optional
	ToolConfigRef *LocalRef `json:"toolConfigRef,omitempty"`
	// ExternalAuthConfigRef names an MCPExternalAuthConfig of the same namespace.
	// +optional
	ExternalAuthConfigRef *LocalRef `json:"externalAuthConfigRef,omitempty"`

	Unenforced `json:",inline"`

	// Unread are the paths of fields that this version does not know, such as sessionStorage.region: a mistyped
	// name, or a field of a newer ToolHive whose CRD is installed. UnmarshalJSON sets it; it is not sent.
	Unread []string `json:"-"`
}

// UnmarshalJSON reads a spec as json.Unmarshal does, and notes what it does not know in Unread.
func (s *MCPServerSpec) UnmarshalJSON(data []byte) error {
	type plain MCPServerSpec // without this method
	*s = MCPServerSpec{}
	unread, err := json.UnmarshalStrict(data, (*plain)(s), json.DisallowUnknownFields)
	for _, e := range unread {
		var field json.FieldError
		if errors.As(e, &field) {
			s.Unread = append(s.Unread, field.FieldPath())
		}
	}
	return err
}

// Unenforced are the fields that ask for something that the proxy of this
// project does not do. They are kept as they are, and each that is set is told.
//
// +kubebuilder:object:generate=true
type Unenforced struct {
	// OIDCConfigRef asks for authentication of clients.
	// +kubebuilder:validation:Type=object
	// +optional
	OIDCConfigRef *apiextensionsv1.JSON `json:"oidcConfigRef,omitempty"`
	// OIDCConfig asked for authentication of clients in older releases of ToolHive.
	// +kubebuilder:validation:Type=object
	// +optional
	OIDCConfig *apiextensionsv1.JSON `json:"oidcConfig,omitempty"`
	// AuthServerRef asks for an authorization server.
	// +kubebuilder:validation:Type=object
	// +optional
	AuthServerRef *apiextensionsv1.JSON `json:"authServerRef,omitempty"`
	// AuthzConfig asks for authorization; another controller owns it.
	// +kubebuilder:validation:Type=object
	// +optional
	AuthzConfig *apiextensionsv1.JSON `json:"authzConfig,omitempty"`
	// AuthzConfigRef asks for authorization.
	// +kubebuilder:validation:Type=object
	// +optional
	AuthzConfigRef *apiextensionsv1.JSON `json:"authzConfigRef,omitempty"`
	// RateLimiting asks for limits on calls.
	// +kubebuilder:validation:Type=object
	// +optional
	RateLimiting *apiextensionsv1.JSON `json:"rateLimiting,omitempty"`
	// WebhookConfigRef asks for webhooks to be called.
	// +kubebuilder:validation:Type=object
	// +optional
	WebhookConfigRef *apiextensionsv1.JSON `json:"webhookConfigRef,omitempty"`
	// ToolsFilter named the tools that clients may see in older releases of ToolHive.
	// +optional
	ToolsFilter *apiextensionsv1.JSON `json:"tools,omitempty"`
	// TelemetryConfigRef asks for traces and metrics.
	// +kubebuilder:validation:Type=object
	// +optional
	TelemetryConfigRef *apiextensionsv1.JSON `json:"telemetryConfigRef,omitempty"`
	// Audit asks for an audit log.
	// +kubebuilder:validation:Type=object
	// +optional
	Audit *apiextensionsv1.JSON `json:"audit,omitempty"`
	// GroupRef names a group, for other controllers.
	// +kubebuilder:validation:Type=object
	// +optional
	GroupRef *apiextensionsv1.JSON `json:"groupRef,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self != '' && !self.matches('[=\\r\\n]')",message="the name of an environment variable must have a character, and neither '=' nor a line break"
	Name string `json:"name"`
	// Value of the variable.
	// +kubebuilder:validation:MaxLength=65536
	Value string `json:"value"`
}

// Volume is a directory of the node.
type Volume struct {
	// Name of the volume in the pod.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a volume must be lower case letters, digits and '-', such as data-1"
	Name string `json:"name"`
	// HostPath is the directory of the node.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains(':')",message="hostPath must be an absolute path without ':', such as /srv/data"
	HostPath string `json:"hostPath"`
	// MountPath is where the server finds it.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains(':')",message="mountPath must be an absolute path without ':', such as /data"
	MountPath string `json:"mountPath"`
	// ReadOnly keeps the server from writing to it.
	// +kubebuilder:default=false
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`
}

// ResourceRequirements are limits and requests, as quantities.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.requests.cpu) || !has(self.limits) || !has(self.limits.cpu) || !isQuantity(self.requests.cpu) || !isQuantity(self.limits.cpu) || !quantity(self.requests.cpu).isGreaterThan(quantity(self.limits.cpu))",message="requests.cpu must not exceed limits.cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.requests.memory) || !has(self.limits) || !has(self.limits.memory) || !isQuantity(self.requests.memory) || !isQuantity(self.limits.memory) || !quantity(self.requests.memory).isGreaterThan(quantity(self.limits.memory))",message="requests.memory must not exceed limits.memory"
type ResourceRequirements struct {
	// Limits are what the server gets at most.
	// +optional
	Limits ResourceList `json:"limits,omitempty"`
	// Requests are what is set aside for the server.
	// +optional
	Requests ResourceList `json:"requests,omitempty"`
}

// ResourceList holds quantities such as 500m and 64Mi.
type ResourceList struct {
	// CPU in cores, such as 500m or 2.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",message="cpu must be a quantity such as 500m or 2"
	// +optional
	CPU string `json:"cpu,omitempty"`
	// Memory in bytes, such as 64Mi or 1Gi.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",message="memory must be a quantity such as 64Mi or 1Gi"
	// +optional
	Memory string `json:"memory,omitempty"`
}

// SecretRef is a key of a Secret that becomes an environment variable.
type SecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Key in the Secret.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
	// TargetEnvName is the name of the variable; the key if unset.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[=\\r\\n]')",message="targetEnvName is the name of an environment variable: neither '=' nor a line break"
	// +optional
	TargetEnvName string `json:"targetEnvName,omitempty"`
}

// PermissionProfileRef names a profile.
type PermissionProfileRef struct {
	// Type is builtin, or configmap for a key of a ConfigMap.
	// +kubebuilder:validation:Enum=builtin;configmap
	// +kubebuilder:default=builtin
	Type string `json:"type"`
	// Name of the profile or of the ConfigMap.
	Name string `json:"name"`
	// Key in the ConfigMap.
	// +optional
	Key string `json:"key,omitempty"`
}

// ResourceOverrides change what the proxy's objects bear.
//
// +kubebuilder:object:generate=true
type ResourceOverrides struct {
	// ProxyDeployment is about the Deployment of the proxy.
	// +optional
	ProxyDeployment *ProxyDeploymentOverrides `json:"proxyDeployment,omitempty"`
	// ProxyService is about the Service that clients use.
	// +optional
	ProxyService *MetadataOverrides `json:"proxyService,omitempty"`
}

// ProxyDeploymentOverrides change the Deployment of the proxy.
//
// +kubebuilder:object:generate=true
type ProxyDeploymentOverrides struct {
	MetadataOverrides `json:",inline"`
	// PodTemplateMetadataOverrides are put on the proxy's pods.
	// +optional
	PodTemplateMetadataOverrides *MetadataOverrides `json:"podTemplateMetadataOverrides,omitempty"`
	// Env of the proxy.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// Resources of the proxy, over those that the manager gives to every proxy.
	// +optional
	Resources ResourceRequirements `json:"resources,omitempty"`
	// ImagePullSecrets with which the proxy's image is pulled.
	// +listType=atomic
	// +optional
	ImagePullSecrets []LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// NodeSelector of the proxy's pods.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations of the proxy's pods.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity of the proxy's pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
}

// MetadataOverrides are labels and annotations that are added; those that the
// controller sets win.
//
// +kubebuilder:object:generate=true
type MetadataOverrides struct {
	// Annotations that are added.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels that are added.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// LocalObjectReference names an object of the same namespace.
//
// +structType=atomic
type LocalObjectReference struct {
	// Name of the object.
	// +kubebuilder:default=""
	// +optional
	Name string `json:"name,omitempty"`
}

// LocalRef names an object of the same namespace.
type LocalRef struct {
	// Name of the object.
	Name string `json:"name"`
}

// SessionStorage says where sessions are kept.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="self.provider != 'redis' || has(self.address)",message="spec.sessionStorage.address is required with provider redis: name its host:port"
type SessionStorage struct {
	// Provider is memory, or redis for a store that proxies share.
	// +kubebuilder:validation:Enum=memory;redis
	Provider string `json:"provider"`
	// Address of the store, host:port.
	// +kubebuilder:validation:MinLength=1
	// +optional
	Address string `json:"address,omitempty"`
	// DB is the number of the database in the store.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=0
	// +optional
	DB int32 `json:"db,omitempty"`
	// KeyPrefix of all keys in the store.
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty"`
	// PasswordRef is the password of the store.
	// +optional
	PasswordRef *SecretKeyRef `json:"passwordRef,omitempty"`
	// TLS asks for encryption on the way to the store.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	TLS *apiextensionsv1.JSON `json:"tls,omitempty"`
}

// SecretKeyRef is a key of a Secret.
type SecretKeyRef struct {
	// Name of the Secret.
	Name string `json:"name"`
	// Key in the Secret.
	Key string `json:"key"`
}
