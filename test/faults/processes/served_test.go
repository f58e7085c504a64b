package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// mostUnserved is how much a manager may ask while a kind is not served for a minute: of all kinds, its watches included.
const mostUnserved = 300

// drivenAgain is how soon a deletion is heeded once the kind is served again.
const drivenAgain = 30 * time.Second

// serve exchanges a CRD for one that serves all its versions, or none.
func (w *world) serve(ctx context.Context, crd string, served bool) error {
	c := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Client.Get(ctx, types.NamespacedName{Name: crd}, c); err != nil {
		return err
	}
	base := c.DeepCopy()
	for i := range c.Spec.Versions {
		c.Spec.Versions[i].Served = served
	}
	return w.Client.Patch(ctx, c, client.MergeFrom(base))
}

func awayFor() time.Duration {
	if everything {
		return time.Minute
	}
	return 8 * time.Second
}

// askedLittle counts what a manager has asked while a kind was not served.
func (w *world) askedLittle(t *testing.T, token, crd string, from, to time.Time) {
	t.Helper()
	n := 0
	for _, r := range w.audited(t) {
		if r.by(token) && r.Received.After(from) && r.Received.Before(to) {
			n++
		}
	}
	t.Logf("%d requests of the manager in %s", n, to.Sub(from).Round(time.Second))
	if n > mostUnserved {
		t.Errorf("%d requests while %s was not served, at most %d", n, crd, mostUnserved)
	}
}

// A CRD serves no version for a while, as when somebody applies that of another release and puts it back. The manager asks
// little meanwhile, holds what it holds, and does what is asked for soon afterwards.
func TestKindNotServed(t *testing.T) {
	dir, m := machine(t)
	for _, crd := range []string{migrationv1.CRDName, v1alpha1.MachineStateCRD} {
		repeat(t, experiment{name: "under the lock, not served: " + crd, all: 1, some: 1, run: func(t *testing.T, _ *rand.Rand) time.Duration {
			away := awayFor()
			w := pristine(t)
			path := filepath.Join(t.TempDir(), "manager")
			w.kubeconfig(t, path)
			w.managerAt(t, path, "--phases-dir", dir)
			token := tokenID(t, path)
			w.start(t, nil)
			w.until(t, "the lock", atGate(beforeConverged))
			if err := w.serve(t.Context(), crd, false); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := w.serve(context.WithoutCancel(t.Context()), crd, true); err != nil {
					t.Error(err)
				}
			}()
			begun := time.Now()
			pause(away)
			ended := time.Now()
			if err := w.serve(t.Context(), crd, true); err != nil {
				t.Fatal(err)
			}
			w.askedLittle(t, token, crd, begun, ended)
			harness.Eventually(t, "the kind to be served", func() error {
				dm, err := w.Migration(t.Context(), setup.MigrationName)
				if err == nil && dm.Status.Machine.Phase == "" {
					err = fmt.Errorf("it has no state")
				}
				return err
			})
			p := w.watch(t, m)
			w.remove(t)
			w.until(t, "what was held to be released", isGone)
			recovered := time.Since(ended)
			t.Logf("released %s after it was served again", recovered)
			p.check(t, invariants.GivenBack, recovered, drivenAgain)
			return recovered
		}})
	}
}

// servers are as many as leave no worker idle.
const servers = 20

// The same for MCPServers, which are looked at again and again.
func TestServersNotServed(t *testing.T) {
	repeat(t, experiment{name: "MCPServers, not served", all: 1, some: 1, run: func(t *testing.T, _ *rand.Rand) time.Duration {
		w := pristine(t)
		token := w.startServers(t)
		driven := func(since time.Time) error {
			seen := map[string]bool{}
			for _, r := range w.audited(t) {
				if r.by(token) && r.Received.After(since) && r.Object.Resource == "mcpservers" && r.Verb == "get" && r.Response.Code == 200 {
					seen[r.Object.Name] = true
				}
			}
			if len(seen) < servers {
				return fmt.Errorf("%d of %d servers", len(seen), servers)
			}
			return nil
		}
		harness.Eventually(t, "all servers to be driven", func() error { return driven(time.Time{}) })
		if err := w.serve(t.Context(), v1beta1.CRDName, false); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		pause(awayFor())
		ended := time.Now()
		if err := w.serve(t.Context(), v1beta1.CRDName, true); err != nil {
			t.Fatal(err)
		}
		w.askedLittle(t, token, v1beta1.CRDName, begun, ended)
		harness.Eventually(t, "all servers to be driven again", func() error { return driven(ended) })
		recovered := time.Since(ended)
		if recovered > drivenAgain {
			t.Errorf("all are driven again after %s, want %s", recovered, drivenAgain)
		}
		return recovered
	}})
}

// startServers starts a manager of MCPServers, and creates some. It answers the id of the manager's token. The cluster is
// spent then.
func (w *world) startServers(t *testing.T) (token string) {
	t.Helper()
	w.spent = true
	rules, err := harness.ChartRules("mcpserver")
	if err == nil {
		err = w.Grant(t.Context(), serversAccount, rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manager")
	if err := w.WriteKubeconfig(t.Context(), path, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: serversAccount}, nil); err != nil {
		t.Fatal(err)
	}
	p, err := w.StartManager("--kubeconfig", path, "--controllers", "mcpserver", "--proxy-image", "registry.example/proxyrunner:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	for i := range servers {
		srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("server-", i)}}
		srv.Spec.Image, srv.Spec.Transport = "registry.example/fetch:1", v1beta1.TransportStreamableHTTP
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(srv)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPServer"))
		if err := w.Client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	return tokenID(t, path)
}

// serversAccount is that of the manager of servers.
const serversAccount = "phasegate-servers"
