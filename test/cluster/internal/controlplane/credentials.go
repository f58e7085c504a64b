package controlplane

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"github.com/phasegate/phasegate/test/cluster/internal/pki"
)

// clients are those that talk to the API server with a certificate, and the
// names that its RBAC defaults know them by.
var clients = map[string]pki.Subject{
	"admin":           {User: "kubernetes-admin", Groups: []string{"system:masters"}},
	controllerManager: {User: "system:kube-controller-manager"},
	scheduler:         {User: "system:kube-scheduler"},
}

// servingHosts are the names that the API server is reached by.
var servingHosts = []string{
	"127.0.0.1", "localhost", serviceIP,
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// writeCredentials makes all keys, certificates and kubeconfigs of a cluster
// whose API server is reached at url.
func writeCredentials(l layout, url string) error {
	authority, err := pki.NewAuthority("phasegate-test-cluster")
	if err != nil {
		return err
	}
	proxyAuthority, err := pki.NewAuthority("phasegate-test-front-proxy")
	if err != nil {
		return err
	}
	serving, err := authority.Issue(pki.Subject{User: apiServer, Hosts: servingHosts})
	if err != nil {
		return err
	}
	proxy, err := proxyAuthority.Issue(pki.Subject{User: frontProxyClient})
	if err != nil {
		return err
	}
	tokens, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		l.pki("ca.crt"): authority.Cert, l.pki("ca.key"): authority.Key,
		l.pki("apiserver.crt"): serving.Cert, l.pki("apiserver.key"): serving.Key,
		l.pki("front-proxy-ca.crt"):     proxyAuthority.Cert,
		l.pki("front-proxy-client.crt"): proxy.Cert, l.pki("front-proxy-client.key"): proxy.Key,
		l.pki("sa.pub"): tokens.Cert, l.pki("sa.key"): tokens.Key,
	}
	for name, subject := range clients {
		pair, err := authority.Issue(subject)
		if err != nil {
			return err
		}
		file := l.kubeconfigOf(name)
		if name == "admin" {
			file = l.kubeconfig()
			files[l.pki("admin.crt")], files[l.pki("admin.key")] = pair.Cert, pair.Key
		}
		files[file] = kubeconfig(url, name, authority.Cert, pair)
	}
	return writeSecret(files)
}

// writeSecret writes files that only their owner may read.
func writeSecret(files map[string][]byte) error {
	for file, content := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	return nil
}

// kubeconfig is self-contained, so that it can be copied anywhere.
func kubeconfig(url, user string, authority []byte, pair pki.Pair) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: phasegate-test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: phasegate-test
  context: {cluster: phasegate-test, user: %s}
current-context: phasegate-test
`, url, encode(authority), user, encode(pair.Cert), encode(pair.Key), user)
}
