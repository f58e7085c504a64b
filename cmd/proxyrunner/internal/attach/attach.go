// Package attach reaches the standard input and output of the MCP server that runs
// in a pod, through the API server.
//
// It knows which pod to take and how to attach to it, and nothing of what is said.
package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Opener makes a function that attaches to the MCP server of that name. It may be
// called any number of times; each call chooses a pod anew, and returns once the
// stream is there. What is read ends when the server does, when the connection is
// lost, or with ctx. Close ends it as well, and may be called twice. What the
// server prints on its standard error is logged at debug.
func Opener(cfg *rest.Config, namespace, server string) func(ctx context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		core, err := typedcorev1.NewForConfig(cfg)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		pod, err := find(ctx, core, namespace, server)
		if err != nil {
			return nil, err
		}
		executor, err := executor(cfg, core, namespace, pod)
		if err != nil {
			return nil, fmt.Errorf("attach to pod %s/%s: %w", namespace, pod, err)
		}
		return open(ctx, executor, fmt.Sprintf("container %s of pod %s/%s", v1beta1.BackendContainer, namespace, pod))
	}
}

// executor speaks WebSocket, and SPDY to what does not.
func executor(cfg *rest.Config, core typedcorev1.CoreV1Interface, namespace, pod string) (remotecommand.Executor, error) {
	url := core.RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{
			Container: v1beta1.BackendContainer, Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	ws, err := remotecommand.NewWebSocketExecutor(cfg, "GET", url.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(cfg, "POST", url)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

type attached struct {
	io.Reader // of the server's output
	io.Writer // to its input
	end       func()
}

func (a *attached) Close() error {
	a.end()
	return nil
}

var errClosed = errors.New("the stream was closed")

// open starts the executor, and waits until it has its streams or has failed. An
// API server that translates for a kubelet gives streams before it has reached the
// kubelet: then it is the first Read that says what is wrong.
func open(ctx context.Context, executor remotecommand.Executor, where string) (io.ReadWriteCloser, error) {
	// What client-go logs of a stream that ends it returns as well.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	outR, outW := io.Pipe()
	inR, inW := io.Pipe()
	input := &signalled{Reader: inR, read: make(chan struct{})}
	end := func() {
		cancel()
		_ = outR.CloseWithError(errClosed) // the error of closing a pipe is always nil
		_ = inR.CloseWithError(errClosed)
	}
	ended := make(chan error, 1)
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: input, Stdout: outW, Stderr: &debugLog{log: slog.Default().With("of", where)},
		})
		if err == nil {
			err = io.EOF
		} else {
			err = fmt.Errorf("attach to %s: %w", where, err)
		}
		ended <- err
		_ = outW.CloseWithError(err)
		_ = inR.CloseWithError(err)
	}()
	select {
	case <-input.read:
		return &attached{Reader: outR, Writer: inW, end: end}, nil
	case err := <-ended:
		end()
		return nil, err
	}
}

// signalled tells when it is read from: the executor reads its input as soon as it
// has a stream to copy it to, and says so in no other way.
type signalled struct {
	io.Reader
	once sync.Once
	read chan struct{}
}

func (s *signalled) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.read) })
	return s.Reader.Read(p)
}

// maxLogged is how much of one piece of output is logged, in bytes.
const maxLogged = 1024

// debugLog logs what it is given, a bounded part of each piece.
type debugLog struct{ log *slog.Logger }

func (d *debugLog) Write(p []byte) (int, error) {
	d.log.Debug("the MCP server says on its standard error", "text", string(p[:min(len(p), maxLogged)]), "bytes", len(p))
	return len(p), nil
}

// annotationSilent on the pod template is when a proxy found the server silent.
const annotationSilent = "mcpserver.toolhive.stacklok.dev/restarted-silent-at"

// Restarter makes a function that has the pods of the MCP server of that name
// replaced, as `kubectl rollout restart` does. It returns once that was asked for.
func Restarter(c client.Client, namespace, server string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{annotationSilent: time.Now().UTC().Format(time.RFC3339)}}}}})
		if err != nil {
			return err
		}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: server}}
		if err := c.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("restart StatefulSet %s/%s: %w", namespace, server, err)
		}
		return nil
	}
}

func find(ctx context.Context, core typedcorev1.CoreV1Interface, namespace, server string) (string, error) {
	list, err := core.Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(v1beta1.BackendSelector(server)).String(),
	})
	if err != nil {
		return "", fmt.Errorf("list the pods of StatefulSet %s/%s: %w", namespace, server, err)
	}
	pod, err := choose(list.Items, server)
	if err != nil {
		return "", fmt.Errorf("StatefulSet %s/%s: %w", namespace, server, err)
	}
	return pod, nil
}

// choose takes the first pod, by name, that can serve, or says of each why not.
func choose(pods []corev1.Pod, server string) (string, error) {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var no []string
	for _, pod := range pods {
		why := unfit(&pod, server)
		if why == "" {
			return pod.Name, nil
		}
		no = append(no, pod.Name+" "+why)
	}
	if len(no) == 0 {
		return "", fmt.Errorf("it has no pod yet")
	}
	return "", fmt.Errorf("no pod can serve: %s", strings.Join(no, ", "))
}

func unfit(pod *corev1.Pod, server string) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil || owner.Kind != "StatefulSet" || owner.Name != server:
		return "is not one of the StatefulSet's"
	case pod.DeletionTimestamp != nil:
		return "is terminating"
	case pod.Status.Phase != corev1.PodRunning:
		return "is " + string(pod.Status.Phase)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return "is not ready"
}
