package calico

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long a kubelet of a test waits for an address; networkPatience for a whole network, as a real one does.
const patience, networkPatience = 15 * time.Second, 2 * time.Minute

// Plugin asks calico-ipam, as the CNI plugin of a node does, for the addresses of pods, or that plugin for their whole
// network. It may be used by several goroutines.
type Plugin struct {
	Release Release
	// Kubeconfig is what install-cni gives to the plugin.
	Kubeconfig string
	// Dir is for the lock by which the plugins of a node wait for each other.
	Dir string
}

// initNetwork is the network namespace of this program, which calico-ipam does not touch.
const initNetwork = "/proc/1/ns/net"

// Pod is who gets an address.
type Pod struct{ Name, Node string }

// Add asks for an address, without its mask. group is calico_api_group of the configuration; empty: it has none.
func (p Plugin) Add(ctx context.Context, pod Pod, group string) (address string, err error) {
	out, err := p.run(ctx, IPAM, "ADD", pod, initNetwork, group)
	if err != nil {
		return "", err
	}
	return addressOf(pod, out)
}

// AddNetwork gives a pod its network, as a container runtime asks for it: an address, and an interface in the network
// namespace at path. It needs root, and that the pod and its node exist.
func (p Plugin) AddNetwork(ctx context.Context, pod Pod, path, group string) (address string, err error) {
	out, err := p.run(ctx, CNI, "ADD", pod, path, group)
	if err != nil {
		return "", err
	}
	return addressOf(pod, out)
}

func addressOf(pod Pod, out []byte) (string, error) {
	var given struct {
		IPs []struct{ Address string } `json:"ips"`
	}
	if err := json.Unmarshal(out, &given); err != nil || len(given.IPs) == 0 {
		return "", fmt.Errorf("ADD %s: no address in %q (%w)", pod.Name, out, err)
	}
	address, _, _ := strings.Cut(given.IPs[0].Address, "/")
	return address, nil
}

// Del releases the address of a pod. Of a pod that has none it is no error.
func (p Plugin) Del(ctx context.Context, pod Pod, group string) error {
	_, err := p.run(ctx, IPAM, "DEL", pod, initNetwork, group)
	return err
}

func (p Plugin) run(ctx context.Context, program Program, command string, pod Pod, netns, group string) ([]byte, error) {
	config := map[string]any{
		"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "calico", "datastore_type": "kubernetes", "nodename": pod.Node,
		"nodename_file_optional": true, "policy": map[string]any{"type": "k8s"},
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
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	limit := patience
	if program == CNI {
		limit = networkPatience
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd, err := p.Release.Command(ctx, program, []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + pod.Name, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + path,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod.Name,
	})
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		why := out.String()
		if why == "" { // it was killed: what it was doing
			why = said.String()[max(0, said.Len()-800):]
		}
		return nil, fmt.Errorf("%s %s %s: %w: %.800s", program, command, pod.Name, err, why)
	}
	return out.Bytes(), nil
}

// path is a directory in which calico-ipam has its name, by which the CNI plugin calls it.
func (p Plugin) path() (string, error) {
	own, first, err := p.Release.find(IPAM)
	if err != nil {
		return "", err
	}
	if filepath.Base(own) == string(IPAM) && len(first) == 0 {
		return p.Release.dir, nil
	}
	err = os.Symlink(own, filepath.Join(p.Dir, string(IPAM)))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return p.Dir, err
}
