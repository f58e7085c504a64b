package calico

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/harness"
)

// WebhooksName is the name of the Service, the account and the ValidatingWebhookConfiguration of Calico's webhooks.
const WebhooksName = "calico-webhooks"

// webhooksRules are what Calico's manifest grants to its webhooks.
var webhooksRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{resources.V3Group}, Resources: []string{"tiers"}, Verbs: []string{"get", "list", "watch"}},
}

// TieredPolicies are the kinds of which the webhooks ask for rights by tier.
var TieredPolicies = []string{"networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"}

// inPod runs a program with the files of a service account where a pod has them: the webhooks look nowhere else.
// Its first argument is their directory. The mount is that of this process alone.
const inPod = `mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io && ln -s "$0" /var/run/secrets/kubernetes.io/serviceaccount && exec "$@"`

// unshare are the arguments that give a program mounts of its own.
func unshare(program ...string) []string {
	args := []string{"--mount", "--propagation", "private"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	return append(append(args, "--"), program...)
}

// MayUnshare is an error where this machine gives no program mounts of its own, which the webhooks need.
func MayUnshare(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "unshare", unshare("sh", "-c", "mount -t tmpfs tmpfs /var/run")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("unshare --mount: %w: %s", err, out)
	}
	return nil
}

// WebhookServer is Calico's own admission webhooks.
type WebhookServer struct {
	*harness.Process
	release Release
	cluster *harness.Cluster
	env     []string
	args    []string
	port    int32
	ca      []byte
	// namespace is that of the pod; only Calico's accounts in it may write ClusterInformation.
	namespace string
}

// StartWebhooks starts them in a namespace, behind a Service, and registers nothing. The caller kills the process.
func (r Release) StartWebhooks(ctx context.Context, c *harness.Cluster, namespace string) (*WebhookServer, error) {
	if err := c.Grant(ctx, WebhooksName, webhooksRules); err != nil {
		return nil, err
	}
	s := &WebhookServer{release: r, cluster: c, namespace: namespace}
	account := filepath.Join(c.LogDir, WebhooksName)
	if err := errors.Join(s.writeAccount(account), s.makeArgs(account), s.ensureService(ctx)); err != nil {
		return nil, err
	}
	return s, s.Start()
}

// writeAccount writes what the kubelet mounts into a pod.
func (s *WebhookServer) writeAccount(dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.cluster.KubeconfigOf(WebhooksName))
	if err != nil {
		return err
	}
	ca := config.CAData
	if len(ca) == 0 {
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			return fmt.Errorf("read the CA of kube-apiserver: %w", err)
		}
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	s.env = []string{"KUBERNETES_SERVICE_HOST=" + at.Hostname(), "KUBERNETES_SERVICE_PORT=" + at.Port()}
	return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "token"), []byte(config.BearerToken), 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600), os.WriteFile(filepath.Join(dir, "namespace"), []byte(s.namespace), 0o600))
}

// makeArgs makes a certificate and finds a port.
func (s *WebhookServer) makeArgs(account string) error {
	path, first, err := s.release.find(Webhooks)
	if err != nil {
		return err
	}
	certs, err := fakeapiserver.NewCertificates(WebhooksName, s.namespace)
	if err != nil {
		return err
	}
	cert, key := filepath.Join(s.cluster.LogDir, WebhooksName+".crt"), filepath.Join(s.cluster.LogDir, WebhooksName+".key")
	if err := errors.Join(os.WriteFile(cert, certs.Cert, 0o600), os.WriteFile(key, certs.Key, 0o600)); err != nil {
		return fmt.Errorf("write the certificate of Calico's webhooks: %w", err)
	}
	address, err := harness.FreeAddress()
	if err != nil {
		return err
	}
	_, portText, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return err
	}
	s.port, s.ca = int32(port), certs.CA
	program := append([]string{"sh", "-c", inPod, account, path}, first...)
	s.args = unshare(append(program, "--tls-cert-file="+cert, "--tls-private-key-file="+key, "--port="+portText)...)
	return nil
}

// ensureService makes the Service, which here leads to this machine.
func (s *WebhookServer) ensureService(ctx context.Context) error {
	err := s.cluster.Client.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: WebhooksName, Namespace: s.namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	if apierrs.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Start runs the process, after Kill once more, at the same address.
func (s *WebhookServer) Start() error {
	path, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	s.Process, err = harness.StartProcess(harness.Program{Name: WebhooksName, Path: path, Args: s.args, Env: s.env, LogDir: s.cluster.LogDir})
	return err
}

// Configuration is the ValidatingWebhookConfiguration that Calico's manifest has, with this certificate.
func (s *WebhookServer) Configuration() *registrationv1.ValidatingWebhookConfiguration {
	config := WebhookConfiguration()
	for i, path := range WebhookPaths {
		config.Webhooks[i].ClientConfig = registrationv1.WebhookClientConfig{CABundle: s.ca,
			Service: &registrationv1.ServiceReference{Name: WebhooksName, Namespace: s.namespace, Path: &path, Port: &s.port}}
	}
	return config
}

// WebhookPaths are where the webhooks of WebhookConfiguration are served, in its order.
var WebhookPaths = []string{"/rbac", "/cluster-info"}

// WebhookConfiguration is what Calico's manifest registers, without where it is served: whoever writes a policy needs rights
// in its tier, and none is written while nobody can be asked; ClusterInformation is for Calico's own components.
func WebhookConfiguration() *registrationv1.ValidatingWebhookConfiguration {
	hook := func(name string, fails registrationv1.FailurePolicyType, more []registrationv1.OperationType, plurals ...string) registrationv1.ValidatingWebhook {
		return registrationv1.ValidatingWebhook{
			Name: name, AdmissionReviewVersions: []string{"v1"}, SideEffects: new(registrationv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(5)), FailurePolicy: &fails,
			Rules: []registrationv1.RuleWithOperations{{
				Operations: append([]registrationv1.OperationType{registrationv1.Create, registrationv1.Update, registrationv1.Delete}, more...),
				Rule: registrationv1.Rule{APIGroups: []string{resources.V3Group}, APIVersions: []string{resources.V3Version},
					Resources: plurals, Scope: new(registrationv1.AllScopes)},
			}},
		}
	}
	return &registrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: WebhooksName}, Webhooks: []registrationv1.ValidatingWebhook{
		hook("tiered-rbac.projectcalico.org", registrationv1.Fail, []registrationv1.OperationType{registrationv1.Connect}, TieredPolicies...),
		hook("cluster-info.api.projectcalico.org", registrationv1.Ignore, nil, "clusterinformations"),
	}}
}
