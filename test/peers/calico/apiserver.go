package calico

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/harness"
)

// apiServerAccount is the account of Calico's API server.
const apiServerAccount = "calico-apiserver"

// apiServerRules are what it needs: v1 to keep its objects in, who may do what, to answer for tiers, and what
// every aggregated API server needs.
var apiServerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{resources.V1Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	{APIGroups: []string{"", "networking.k8s.io", "rbac.authorization.k8s.io", "admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
}

// Server is Calico's own API server, which kube-apiserver asks for projectcalico.org/v3.
type Server struct {
	release Release
	cluster *harness.Cluster
	process *harness.Process
	args    []string
}

// StartAPIServer starts it, registers it in the way of the stand-in, and returns when kube-apiserver finds it
// available. The caller ends it.
func (r Release) StartAPIServer(ctx context.Context, c *harness.Cluster) (*Server, error) {
	if err := c.Grant(ctx, apiServerAccount, apiServerRules); err != nil {
		return nil, err
	}
	certs, err := fakeapiserver.NewCertificates(fakeapiserver.ServiceName, fakeapiserver.Namespace)
	if err != nil {
		return nil, err
	}
	cert, key := filepath.Join(c.LogDir, "calico-apiserver.crt"), filepath.Join(c.LogDir, "calico-apiserver.key")
	if err := errors.Join(os.WriteFile(cert, certs.Cert, 0o600), os.WriteFile(key, certs.Key, 0o600)); err != nil {
		return nil, fmt.Errorf("write the certificate of Calico's API server: %w", err)
	}
	address, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return nil, err
	}
	config := c.KubeconfigOf(apiServerAccount)
	s := &Server{release: r, cluster: c, args: []string{
		"--bind-address=" + host, "--secure-port=" + portText, "--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
	}}
	if err := s.Start(); err != nil {
		return nil, err
	}
	if err := fakeapiserver.Register(ctx, c.Config, int32(port), certs.CA); err != nil {
		return nil, errors.Join(err, s.process.Alive(), s.End())
	}
	return s, nil
}

// Start runs the process, after Kill once more, at the same address.
func (s *Server) Start() (err error) {
	s.process, err = s.release.start(s.cluster, APIServer, datastore(s.cluster.KubeconfigOf(apiServerAccount)), s.args...)
	return err
}

// Kill ends the process as a power cut does.
func (s *Server) Kill() { s.process.Kill() }

// Tail is the end of what it said.
func (s *Server) Tail(lines int) string { return s.process.Tail(lines) }

// End ends the process; the APIService stays. It may be called twice.
func (s *Server) End() error {
	s.process.Kill() // it waits for its open watches otherwise
	return nil
}
