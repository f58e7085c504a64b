package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// MCPServer asks for a server of the Model Context Protocol: a backend that runs
// an image, and a proxy in front of it that clients in the cluster talk to.
//
// +kubebuilder:resource:path=mcpservers,shortName=mcpserver;mcpservers,categories=toolhive
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="toolhive.stacklok.dev/v1alpha1 MCPServer is deprecated: use v1beta1, which has the same fields"
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
	Spec v1beta1.MCPServerSpec `json:"spec,omitempty"`
	// Status is what was observed; written by the controller only.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status v1beta1.MCPServerStatus `json:"status,omitempty"`
}
