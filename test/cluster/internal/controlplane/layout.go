// Package controlplane runs a Kubernetes control plane as plain processes on
// this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
// and the node simulator. It must not know what is tested on it.
//
// All that a cluster is lies in one directory, its home; there is no other
// state, so a home can be brought up and taken down by different programs.
package controlplane

import (
	"path/filepath"

	"github.com/phasegate/phasegate/test/cluster/internal/process"
)

// The names of the servers, of their binaries, and of their records.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	fakeNodes         = "fakenodes"
)

// layout says where in a home things are.
type layout struct{ process.Home }

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{string(l.Home)}, elements...)...)
}

func (l layout) pki(file string) string        { return l.path("pki", file) }
func (l layout) kubeconfig() string            { return l.path("kubeconfig") }
func (l layout) kubeconfigOf(of string) string { return l.path("pki", of+".kubeconfig") }
func (l layout) record() string                { return l.path("cluster.json") }
func (l layout) data() string                  { return l.path("etcd") }

// made lists everything that a cluster leaves in its home.
func (l layout) made() []string {
	return []string{
		l.data(), l.path("pki"), l.path("pids"), l.path("logs"),
		l.kubeconfig(), l.record(),
	}
}
