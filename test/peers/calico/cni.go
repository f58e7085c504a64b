package calico

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long a kubelet of a test waits for the plugin.
const patience = 15 * time.Second

// Plugin asks calico-ipam, as the CNI plugin of a node does, for the addresses of pods. It may be used by
// several goroutines.
type Plugin struct {
	Release Release
	// Kubeconfig is what install-cni gives to the plugin.
	Kubeconfig string
	// Dir is for the lock by which the plugins of a node wait for each other.
	Dir string
}

// Pod is who gets an address.
type Pod struct{ Name, Node string }

// Add asks for an address, without its mask. group is calico_api_group of the configuration; empty: it has none.
func (p Plugin) Add(ctx context.Context, pod Pod, group string) (address string, err error) {
	out, err := p.run(ctx, "ADD", pod, group)
	if err != nil {
		return "", err
	}
	var given struct {
		IPs []struct{ Address string } `json:"ips"`
	}
	if err := json.Unmarshal(out, &given); err != nil || len(given.IPs) == 0 {
		return "", fmt.Errorf("ADD %s: no address in %q (%w)", pod.Name, out, err)
	}
	address, _, _ = strings.Cut(given.IPs[0].Address, "/")
	return address, nil
}

// Del releases the address of a pod. Of a pod that has none it is no error.
func (p Plugin) Del(ctx context.Context, pod Pod, group string) error {
	_, err := p.run(ctx, "DEL", pod, group)
	return err
}

func (p Plugin) run(ctx context.Context, command string, pod Pod, group string) ([]byte, error) {
	config := map[string]any{
		"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico", "datastore_type": "kubernetes", "nodename": pod.Node,
		"ipam_lock_file": filepath.Join(p.Dir, pod.Node+".lock"),
		"kubernetes":     map[string]any{"kubeconfig": p.Kubeconfig}, "ipam": map[string]any{"type": "calico-ipam", "assign_ipv4": "true"},
	}
	if group != "" {
		config["calico_api_group"] = group
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd, err := p.Release.Command(ctx, IPAM, []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + pod.Name, "CNI_NETNS=/proc/1/ns/net", "CNI_IFNAME=eth0", "CNI_PATH=" + p.Release.dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod.Name,
	})
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("calico-ipam %s %s: %w: %.400s", command, pod.Name, err, out.String())
	}
	return out.Bytes(), nil
}
