// Package fakeapiserver is an aggregated API server that stands in for Calico's own: it serves
// projectcalico.org/v3 and keeps every object in crd.projectcalico.org/v1, so that a test can cut a
// real cluster over from one to the other.
//
// It is honest about what it is not. It authenticates nobody (kube-apiserver has authorized a request
// before it proxies it; the listener is on the loopback device), runs no admission (Calico's own runs
// ValidatingAdmissionPolicies), answers in JSON only, knows neither server-side apply nor deletecollection
// nor OpenAPI, and deletes at once without heeding finalizers. It serves every kind of the registry;
// Calico's own has no IPAMBlock and no IPAMHandle. As that one does, it serves Profile besides, which is
// no kind of a CRD.
//
// It is for tests and the demo only: no product package may import it.
package fakeapiserver
