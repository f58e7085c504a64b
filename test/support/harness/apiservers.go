package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AddAPIServer starts one more kube-apiserver on the etcd of the cluster, with the flags of the first one and
// another port, and returns it when it is ready, with the administrator's configuration for it. It ends with the
// cluster, if not by Kill before. program is that of another version; empty: the one of the first. flags, as
// --name=value, come in place of those of the first.
func (c *Cluster) AddAPIServer(ctx context.Context, name, program string, flags ...string) (*Server, *rest.Config, error) {
	first, err := c.Server(APIServer)
	if err != nil {
		return nil, nil, err
	}
	if program != "" {
		first.args[0] = program
	}
	address, err := FreeAddress()
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	launcher, err := tool("", "cluster")
	if err != nil {
		return nil, nil, err
	}
	args := append([]string{"run", "--dir", first.home, "--name", name, "--"}, replaced(first.args, append(flags, "--secure-port="+port))...)
	cmd := exec.CommandContext(ctx, launcher, args...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w:\n%s", name, err, said)
	}
	added, err := c.Server(name)
	if err != nil {
		return nil, nil, err
	}
	config := rest.CopyConfig(c.Config)
	config.Host = "https://" + address
	asking, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	return added, config, Await(ctx, name+" to be ready", reviveLimit, func(ctx context.Context) error {
		return askReady(ctx, asking, config.Host)
	})
}

// replaced are arguments with these flags in place of their own.
func replaced(args, flags []string) []string {
	is := func(a, b string) bool {
		name, _, _ := strings.Cut(a, "=")
		return strings.HasPrefix(b, name+"=")
	}
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(flags, func(flag string) bool { return is(flag, arg) })
	})
	return append(args, flags...)
}

// Advertise makes the EndpointSlice of the Service kubernetes, which lists API servers, as theirs do in a real
// cluster. No endpoint may be a loopback address: each server gets a port of an address of this machine that leads to it.
// end takes all away again.
func (c *Cluster) Advertise(ctx context.Context, servers ...*rest.Config) (end func() error, err error) {
	host, err := hostAddress()
	if err != nil {
		return nil, err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
	}
	var listeners []net.Listener
	stop := func() (err error) {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	for i, server := range servers {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("advertise %s: %w", server.Host, err), stop())
		}
		listeners = append(listeners, listener)
		go forward(listener, strings.TrimPrefix(server.Host, "https://"), 0)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprintf("https-%d", i)), Port: new(int32(listener.Addr().(*net.TCPAddr).Port)), Protocol: new(corev1.ProtocolTCP)})
	}
	if err := c.Client.Create(ctx, slice); err != nil {
		return nil, errors.Join(fmt.Errorf("advertise API servers: %w", err), stop())
	}
	return func() error {
		return errors.Join(client.IgnoreNotFound(c.Client.Delete(context.Background(), slice)), stop())
	}, nil
}

// hostAddress is one of this machine that others could reach.
func hostAddress() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, address := range all {
		prefix, err := netip.ParsePrefix(address.String())
		if ip := prefix.Addr(); err == nil && ip.Is4() && ip.IsGlobalUnicast() {
			return ip.String(), nil
		}
	}
	return "", errors.New("this machine has no IPv4 address but loopback: an EndpointSlice of API servers cannot name any")
}

// Slow is a way to an API server on which each piece of a request or an answer comes that much later. end closes it.
func Slow(to *rest.Config, by time.Duration) (config *rest.Config, end func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("make a slow way to %s: %w", to.Host, err)
	}
	go forward(listener, strings.TrimPrefix(to.Host, "https://"), by)
	config = rest.CopyConfig(to)
	config.Host = "https://" + listener.Addr().String()
	return config, listener.Close, nil
}

// late is a connection from which everything comes later.
type late struct {
	net.Conn
	by time.Duration
}

func (l late) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	time.Sleep(l.by)
	return n, err
}

// forward ends with its listener. by is how much later each piece arrives.
func forward(from net.Listener, to string, by time.Duration) {
	for {
		incoming, err := from.Accept()
		if err != nil {
			return
		}
		outgoing, err := net.Dial("tcp", to)
		if err != nil {
			_ = incoming.Close() // as a server that is not there
			continue
		}
		for _, way := range [][2]net.Conn{{incoming, outgoing}, {outgoing, incoming}} {
			go func() {
				_, _ = io.Copy(way[0], late{way[1], by})        // ends with either side
				_ = errors.Join(way[0].Close(), way[1].Close()) // the other way may have been first
			}()
		}
	}
}
