package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// The ways of installing Calico, as the table in docs/operate/troubleshooting.md#check-cni-group has them.
const (
	byOperator      = "the Tigera operator, also by the Helm chart `tigera-operator`"
	byManifest      = "manifests, or a chart of them, with Calico's API server"
	withoutServer   = "the same, without Calico's API server"
	withOldGroup    = "the same, with the old group"
	ownDaemonSet    = "your own DaemonSet, without `CNI_NETWORK_CONFIG`"
	ownTemplate     = "your own DaemonSet, with `CNI_NETWORK_CONFIG`"
	ownFile         = "`CNI_NETWORK_CONFIG_FILE`, or another ConfigMap, which the manager may not read"
	notCalicoPlugin = "another CNI plugin, without `install-cni`"
)

// saidOf is what the table says that the check cni-group says, by way of installing; empty for nothing.
func saidOf(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "operate", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Check cni-group\n")
	section, _, _ = strings.Cut(section, "\n### ")
	said := map[string]string{}
	for line := range strings.SplitSeq(section, "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 4 {
			said[strings.TrimPrefix(cells[0], "| ")] = strings.TrimPrefix(strings.Trim(cells[2], "`"), "nothing")
		}
	}
	return said
}

// assertSaysOfCNI asks the check as kubectl phasegate check does, which takes seconds for all the others; say is empty where it
// has nothing to say. It answers what the check says.
func (w *world) assertSaysOfCNI(t *testing.T, say string) (said string) {
	t.Helper()
	store, err := machinestore.Load(machinestore.Options{Shipped: phases.Files, Bindings: catalog.Bindings, Log: logr.Discard()})
	w.do(t, err)
	settings := datastoremigration.Settings{Registry: w.Registry, CalicoNamespace: setup.CalicoNamespace}
	checks := datastoremigration.Checks(w.Client, settings, store.Of(datastoremigration.MachineName).InForce())
	at := slices.IndexFunc(checks, func(c check.Check) bool { return c.ID == "cni-group" })
	findings, err := checks[at].Run(t.Context())
	w.do(t, err)
	for _, f := range findings {
		said += f.String()
	}
	if (said == "") != (say == "") || !strings.Contains(said, say) {
		t.Errorf("the check cni-group says %q, want %q", said, say)
	}
	return said
}

// What the check cni-group says is in the table of the page, for each way of installing Calico with its API server. Where it
// names a command, that is typed, and then it says nothing. TestCopiedAheadWithoutAPIServer is the way without that server.
func TestWaysOfInstalling(t *testing.T) {
	w := pristine(t)
	shipped := w.node(t)
	t.Cleanup(func() {
		w.reinstall(t, shipped, fixture.CNITemplate(` "calico_api_group": "__CALICO_API_GROUP__",`))
	})
	env := func(e ...corev1.EnvVar) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) { pod.InitContainers[0].Env = e }
	}
	asShipped := func(*corev1.PodSpec) {}
	ways := map[string]struct {
		template string
		pod      func(*corev1.PodSpec)
		mended   func(said string) // does what the table says
	}{
		byManifest:      {template: fixture.CNITemplate(""), pod: asShipped, mended: func(said string) { w.typeRemedy(t, said) }},
		withOldGroup:    {template: fixture.CNITemplate(` "calico_api_group": "crd.projectcalico.org/v1",`), pod: asShipped, mended: func(said string) { w.typeRemedy(t, said) }},
		ownDaemonSet:    {pod: env()},
		ownTemplate:     {pod: env(corev1.EnvVar{Name: "CNI_NETWORK_CONFIG", Value: fixture.CNITemplate("")})},
		ownFile:         {pod: env(corev1.EnvVar{Name: "CNI_NETWORK_CONFIG_FILE", Value: "/etc/cni/template"})},
		notCalicoPlugin: {pod: func(pod *corev1.PodSpec) { pod.InitContainers = nil }},
	}
	table := saidOf(t)
	for name, way := range ways {
		inTurn(t, name, func(t *testing.T) {
			node := shipped.DeepCopy()
			way.pod(&node.Spec.Template.Spec)
			w.reinstall(t, node, way.template)
			said := w.assertSaysOfCNI(t, table[name])
			if way.mended != nil {
				way.mended(said)
				w.assertSaysOfCNI(t, "")
			}
		})
	}
	inTurn(t, byOperator, func(t *testing.T) {
		w.reinstall(t, shipped, "")
		w.do(t, fixture.TakenByOperator(t.Context(), w.Client, setup.CalicoNamespace))
		w.assertSaysOfCNI(t, table[byOperator])
	})
	want := append(sortedKeys(ways), byOperator, withoutServer, "installed by")
	slices.Sort(want)
	if got := sortedKeys(table); !slices.Equal(got, want) {
		t.Errorf("the table has the ways\n%q, played are\n%q", got, want)
	}
}

// typeRemedy types the command at the end of what a check says.
func (w *world) typeRemedy(t *testing.T, said string) {
	t.Helper()
	at := strings.Index(said, "kubectl -n ")
	if at < 0 {
		t.Fatalf("no command is named: %s", said)
	}
	w.said(t, strings.TrimSpace(said[at:]), 0, "replaced")
}

// operator makes Calico one of the Tigera operator, and plays that at Converged; the result is sent.
func (w *world) operator(t *testing.T, name string) <-chan error {
	t.Helper()
	w.do(t, fixture.TakenByOperator(t.Context(), w.Client, setup.CalicoNamespace))
	ctx, switched := t.Context(), make(chan error, 1)
	go func() {
		_, err := w.AwaitPhase(ctx, name, "Converged", 2*harness.Patience)
		if err == nil {
			err = fixture.SwitchedByOperator(ctx, w.Client, setup.CalicoNamespace)
		}
		switched <- err
	}()
	return switched
}

func (w *world) node(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	node := &appsv1.DaemonSet{}
	w.do(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: setup.CalicoNamespace, Name: fixture.NodeDaemonSet}, node))
	return node
}

// reinstall makes calico-node, and the template of calico-config unless it is empty, what they are to be. It may be called
// after the end of a test.
func (w *world) reinstall(t *testing.T, want *appsv1.DaemonSet, template string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	node := &appsv1.DaemonSet{}
	w.do(t, w.Client.Get(ctx, client.ObjectKeyFromObject(want), node))
	before := node.DeepCopy()
	node.OwnerReferences, node.Spec.Template = want.OwnerReferences, want.Spec.Template
	w.do(t, w.Client.Patch(ctx, node, client.MergeFrom(before)))
	if template == "" {
		return
	}
	config := &corev1.ConfigMap{}
	config.Namespace, config.Name = setup.CalicoNamespace, fixture.ConfigMap
	config.Data = map[string]string{fixture.CNIKey: template}
	w.do(t, w.Client.Update(ctx, config))
}
