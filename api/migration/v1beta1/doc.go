// Package v1beta1 is the version of the DatastoreMigration API that the first
// release of the peer served. It is served still, deprecated, and identical to
// v1 on the wire: no conversion is needed, and the same validations hold
// whichever version a client writes. Only version v1 gains fields by hand.
//
// No program uses its Go type: the version in the CRD is generated from it.
//
// +groupName=migration.projectcalico.org
package v1beta1
