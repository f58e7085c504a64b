// Package kubelet plays the part of a kubelet that answers `kubectl attach`: an API
// server sends the streams of a pod's container to it.
//
// It knows which container to attach to, not what runs in it.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// limit is how long a stream may be idle, and how long its making may take.
const limit = time.Minute

// Serve makes a Node whose containers are those given, by NAMESPACE/POD/CONTAINER.
func Serve(t testing.TB, c client.Client, node string, containers map[string]*container.Container) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("namespace") + "/" + r.PathValue("pod") + "/" + r.PathValue("container")
		running, ok := containers[name]
		if !ok {
			http.Error(w, "no container "+name, http.StatusNotFound)
			return
		}
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		attach(w, r, running, options)
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	before := n.DeepCopy() // a controller of nodes may write them, too
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// Attach answers like an API server that has passed an attachment on to a kubelet, with the
// standard input, output and error of a container.
func Attach(w http.ResponseWriter, r *http.Request, c *container.Container) {
	attach(w, r, c, &remotecommand.Options{Stdin: true, Stdout: true, Stderr: true})
}

func attach(w http.ResponseWriter, r *http.Request, c *container.Container, o *remotecommand.Options) {
	remotecommand.ServeAttach(w, r, attacher{c}, r.PathValue("pod"), "", r.PathValue("container"),
		o, limit, limit, remotecommand.SupportedStreamingProtocols)
}

type attacher struct{ container *container.Container }

// AttachContainer copies until the container, or the client, has had enough.
func (a attacher) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	stream, err := a.container.Open(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	if in != nil {
		go func() {
			_, _ = io.Copy(stream, in) // the end of the client's input
			_ = stream.Close()
		}()
	}
	_, err = io.Copy(out, stream)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("copy the output: %w", err)
	}
	return nil
}
