package mcpserver

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	phasegatev1alpha1 "github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// shared is the API server of all tests here. It has no controllers: the tests
// play them, and each has a namespace of its own.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

func startServer() (*harness.Cluster, error) {
	ctx := context.Background()
	cluster, err := harness.Start(ctx, harness.Options{Own: true,
		Without: []string{"fakenodes", "scheduler", "controller-manager"},
		Types:   []func(*runtime.Scheme) error{v1beta1.AddToScheme, phasegatev1alpha1.AddToScheme}})
	if err != nil {
		return nil, err
	}
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	ours, err := crds.Driven(root)
	if err != nil {
		return nil, err
	}
	return cluster, crds.Install(ctx, cluster.Config, ours)
}

// newServer creates one that is called fetch, in a namespace of its own.
func newServer(ctx context.Context, c client.Client, spec v1beta1.MCPServerSpec) (*server, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "mcpserver-"}}
	if err := c.Create(ctx, namespace); err != nil {
		return nil, err
	}
	srv := &server{ObjectMeta: metav1.ObjectMeta{Name: "fetch", Namespace: namespace.Name}, Spec: spec}
	return srv, c.Create(ctx, srv)
}

// own are the settings of a manager whose proxies are Phasegate's.
var own = Settings{ProxyImage: "example.org/proxy:1"}

// do calls an action for the server as it is stored now.
func do(ctx context.Context, c client.Client, srv *server, action string) (outputs, error) {
	return doWith(ctx, &steps{Settings: own, client: c}, srv, action)
}

func doWith(ctx context.Context, s *steps, srv *server, action string) (outputs, error) {
	now := &server{}
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(srv), now); err != nil {
		return nil, err
	}
	return runner.Once(ctx, s.client, now, s.actions()[action], nil, clocktesting.NewFakeClock(now.CreationTimestamp.Time))
}
