// Package v1alpha1 is the version of the MCPServer API that the first releases
// of the peer served. It is served still, deprecated, and identical to v1beta1
// on the wire: no conversion is needed, and the same validations hold whichever
// version a client writes. Only v1beta1 gains fields by hand.
//
// No program uses its Go type: the version in the CRD is generated from it.
//
// +groupName=toolhive.stacklok.dev
package v1alpha1
