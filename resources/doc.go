// Package resources knows the Calico kinds: their names in both API groups, the lossless conversion from v1 to v3, and
// when two v3 objects are equal.
//
// All functions are pure. The package must not know the API server (package copier reads and writes), phases, or the
// migration's own resource. Objects are unstructured content, not Calico's Go types, so that unknown fields survive.
package resources
