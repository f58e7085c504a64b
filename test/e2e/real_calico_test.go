package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/setup"
)

// calicoBin names the directory of a Calico release's own programs. None of them is built here.
const calicoBin = "CALICO_BIN"

// What Calico's own calico-ipam does with the configuration that install-cni makes of the template: before, with v1
// locked for good, and once the template follows calico-node's variable. It is what the check cni-group is about.
func TestRealCNIPlugin(t *testing.T) {
	plugin := filepath.Join(os.Getenv(calicoBin), "calico-ipam")
	if _, err := os.Stat(plugin); os.Getenv(calicoBin) == "" || err != nil {
		t.Skipf("not run: it takes Calico's calico-ipam from %s (%v)", calicoBin, err)
	}
	w := own(t, setup.Options{Objects: fixture.Demo(1, objects), NoStandIn: true})
	w.setCNITemplate(t, fixture.CNITemplate(""))
	const account = "calico-cni"
	w.do(t, w.Grant(t.Context(), account, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}))
	asks := func(pod, group string) string { return w.address(t, plugin, account, pod, group) }

	if got := asks("before", ""); got == "" {
		t.Fatal("the plugin gives no address before anything is migrated: is it of a release that works with these CRDs?")
	}
	w.manager(t)
	w.followPage(t, "First let the CNI plugin follow")
	for why, group := range map[string]string{
		"Calico's template names no group, and the plugin discovers v1": "",
		"install-cni falls back to v1":                                  "crd.projectcalico.org/v1",
	} {
		if got := asks("locked-"+group[:min(3, len(group))], group); got != "" {
			t.Errorf("a new pod gets %s in v1, which is locked for good, though %s", got, why)
		}
	}
	w.followPage(t, "Then let the components use v3")
	text := strings.ReplaceAll(w.cniTemplate(t), "__CALICO_API_GROUP__", fixture.APIGroupV3) // as install-cni does with its variable
	if !strings.Contains(text, `"calico_api_group": "`+fixture.APIGroupV3+`"`) {
		t.Fatalf("the configuration does not name v3:\n%s", text)
	}
	if got := asks("complete", fixture.APIGroupV3); got == "" {
		t.Error("a new pod gets no address though the migration is complete")
	}
}

// address is what the plugin gives a pod; empty where it gives none in time.
func (w *world) address(t *testing.T, plugin, account, pod, group string) string {
	t.Helper()
	config := map[string]any{
		"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico", "datastore_type": "kubernetes", "nodename": "node-0",
		"kubernetes": map[string]any{"kubeconfig": w.KubeconfigOf(account)}, "ipam": map[string]any{"type": "calico-ipam", "assign_ipv4": "true"},
	}
	if group != "" {
		config["calico_api_group"] = group
	}
	stdin, err := json.Marshal(config)
	w.do(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin = strings.NewReader(string(stdin))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+pod, "CNI_NETNS=/proc/1/ns/net", "CNI_IFNAME=eth0",
		"CNI_PATH="+filepath.Dir(plugin), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+pod)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("calico-ipam ADD for %s, group %q: %v\n%.500s", pod, group, err, out)
	var given struct {
		IPs []struct{ Address string } `json:"ips"`
	}
	if err != nil || json.Unmarshal(out, &given) != nil || len(given.IPs) == 0 {
		return ""
	}
	return given.IPs[0].Address
}
