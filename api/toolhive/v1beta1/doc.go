// Package v1beta1 is the stored version of the MCPServer API.
//
// Names, defaults and columns are compatible with the CRD of ToolHive's
// operator, so that manifests and scripts written for it go on working. The
// package holds data, names and bounds only: what a phase does is decided by the
// machine in phases/mcpserver.yaml, which this package must not know.
//
// +groupName=toolhive.stacklok.dev
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "toolhive.stacklok.dev", Version: "v1beta1"}

// AddToScheme registers the types of this package. It may be called twice.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MCPServer{}, &MCPServerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
