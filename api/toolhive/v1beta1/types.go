package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// MCPServer asks for a server of the Model Context Protocol: a backend that runs
// an image, and a proxy in front of it that clients in the cluster talk to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=mcpservers,shortName=mcpserver;mcpservers,categories=toolhive
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels="toolhive.stacklok.dev/auto-migrate-storage-version=true"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || has(self.spec)",optionalOldSelf=true,fieldPath=".spec",message="spec is required: name an image in spec.image"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 50",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must have at most 50 characters: Services called mcp-NAME-headless and mcp-NAME-proxy are made for it"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^[-a-z0-9]*$')",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must be lower case letters, digits and '-', without '.': it becomes a part of the names of Services"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.endsWith('-proxy') && !self.metadata.name.endsWith('-headless')",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must not end in -proxy or -headless: its Services could be those of another server"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name != 'mcpserver'",optionalOldSelf=true,fieldPath=".metadata",message="metadata.name must not be mcpserver: the label app=mcpserver selects the proxies of all servers"
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type MCPServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted. It is required of new servers.
	// +optional
	Spec MCPServerSpec `json:"spec,omitempty"`
	// Status is what was observed; written by the controller only.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status MCPServerStatus `json:"status,omitempty"`
}

// MCPServerList is a list of servers.
//
// +kubebuilder:object:root=true
type MCPServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MCPServer `json:"items"`
}

// MCPServerStatus is bounded in every part, so that an object never outgrows
// what the API server accepts.
//
// +kubebuilder:object:generate=true
type MCPServerStatus struct {
	// Phase for display: Pending, Ready, Failed, Terminating or Stopped. It has a
	// pattern instead of a list of values, since phases can be added by editing the
	// machine.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_-]*$`
	// +optional
	Phase string `json:"phase,omitempty"`
	// Message says in a sentence what is being done or waited for.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the metadata.generation that this status is about.
	// -1 until somebody has looked at it, so that who waits for it goes on waiting.
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:default:=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// URL at which clients in the cluster reach the proxy.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	URL string `json:"url,omitempty"`
	// ReadyReplicas counts the proxy pods that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// ToolConfigHash is the hash of the MCPToolConfig that spec.toolConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	ToolConfigHash string `json:"toolConfigHash,omitempty"`
	// ExternalAuthConfigHash is the hash of the MCPExternalAuthConfig that
	// spec.externalAuthConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	ExternalAuthConfigHash string `json:"externalAuthConfigHash,omitempty"`
	// AuthServerConfigHash is the hash of the MCPExternalAuthConfig that spec.authServerRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	AuthServerConfigHash string `json:"authServerConfigHash,omitempty"`
	// OIDCConfigHash is the hash of the MCPOIDCConfig that spec.oidcConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	OIDCConfigHash string `json:"oidcConfigHash,omitempty"`
	// AuthzConfigHash is the hash of the MCPAuthzConfig that spec.authzConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	AuthzConfigHash string `json:"authzConfigHash,omitempty"`
	// TelemetryConfigHash is the hash of the MCPTelemetryConfig that spec.telemetryConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	TelemetryConfigHash string `json:"telemetryConfigHash,omitempty"`
	// WebhookConfigHash is the hash of the MCPWebhookConfig that spec.webhookConfigRef names.
	// +kubebuilder:validation:MaxLength=80
	// +optional
	WebhookConfigHash string `json:"webhookConfigHash,omitempty"`

	// Conditions, each type once: Ready, Reconciling and Stalled (kstatus), and
	// those of names.go.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Machine is where the state machine stands, why it stands there, and how it
	// came there.
	// +optional
	Machine v1alpha1.MachineStatus `json:"machine,omitempty"`
}
