package controlplane

import "fmt"

// frontProxyClient is the name that the API server gives itself when it passes
// a request on to an aggregated API server.
const frontProxyClient = "front-proxy-client"

// Services get addresses that nothing routes; pods and nodes have others (see
// cmd/fakenodes). serviceIP is the first one: kubernetes.default.
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// ports are the TCP ports of one cluster, all on the loopback interface. The
// controller manager and the scheduler listen on none: what they do is seen in
// the API, and three ports less cannot collide.
type ports struct{ etcdClient, etcdPeer, apiServer int }

func (p ports) etcdURL() string      { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient) }
func (p ports) etcdPeerURL() string  { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdPeer) }
func (p ports) apiServerURL() string { return fmt.Sprintf("https://127.0.0.1:%d", p.apiServer) }

// server is one process of the control plane.
type server struct {
	name string
	args []string
}

// servers lists the control plane in the order in which it starts.
func servers(l layout, p ports, o Options) []server {
	all := []server{
		{etcd, etcdArgs(l, p, o)},
		{apiServer, append(apiServerArgs(l, p), o.APIServerArgs...)},
		{controllerManager, controllerManagerArgs(l)},
		{scheduler, schedulerArgs(l)},
		{fakeNodes, []string{"--kubeconfig=" + l.kubeconfig(), fmt.Sprintf("--nodes=%d", o.Nodes)}},
	}
	var wanted []server
	for _, s := range all {
		if !o.leavesOut(s.name) {
			wanted = append(wanted, s)
		}
	}
	return wanted
}

func etcdArgs(l layout, p ports, o Options) []string {
	args := []string{
		"--name=phasegate-test",
		"--data-dir=" + l.data(),
		"--listen-client-urls=" + p.etcdURL(),
		"--advertise-client-urls=" + p.etcdURL(),
		"--listen-peer-urls=" + p.etcdPeerURL(),
		"--initial-advertise-peer-urls=" + p.etcdPeerURL(),
		"--initial-cluster=phasegate-test=" + p.etcdPeerURL(),
		"--log-level=warn",
	}
	if o.NoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiServerArgs(l layout, p ports) []string {
	return []string{
		"--etcd-servers=" + p.etcdURL(),
		"--bind-address=127.0.0.1",
		// An endpoint of the kubernetes Service may not be a loopback address.
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--secure-port=%d", p.apiServer),
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.pki("sa.pub"),
		"--service-account-signing-key-file=" + l.pki("sa.key"),
		"--requestheader-client-ca-file=" + l.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyClient,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + l.pki("front-proxy-client.key"),
		// No pod network: an aggregated server is reached by the ExternalName
		// of its Service (see README.md), never by the addresses of its pods.
		"--enable-aggregator-routing=false",
	}
}

func controllerManagerArgs(l layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfigOf(controllerManager),
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.pki("sa.key"),
		"--root-ca-file=" + l.pki("ca.crt"),
		"--cluster-signing-cert-file=" + l.pki("ca.crt"),
		"--cluster-signing-key-file=" + l.pki("ca.key"),
		// The default, 20 a second, makes both the start and the garbage
		// collection of a test's leftovers slow.
		"--kube-api-qps=300",
		"--kube-api-burst=600",
	}
}

func schedulerArgs(l layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfigOf(scheduler),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=300",
		"--kube-api-burst=600",
	}
}
