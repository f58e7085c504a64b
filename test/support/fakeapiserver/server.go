package fakeapiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/resources"
)

// The Service through which kube-apiserver reaches the stand-in.
const (
	// Namespace holds the Service, as Calico's API server does in an installation by the operator.
	Namespace = "calico-apiserver"
	// ServiceName is also the name in the serving certificate.
	ServiceName = "calico-api"
)

const drainWithin = 3 * time.Second

// Server is one stand-in. Make it with Listen, then call Serve once.
type Server struct {
	listener net.Listener
	handler  *handler
	serving  tls.Certificate
	caBundle []byte
}

// Listen opens the address (127.0.0.1:0 picks a free port) and makes a fresh CA and serving
// certificate. cfg must be allowed to read and write crd.projectcalico.org.
func Listen(cfg *rest.Config, reg *resources.Registry, address string) (*Server, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the API server behind has its own limits
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for v1 objects: %w", err)
	}
	certs, err := NewCertificates(ServiceName, Namespace)
	if err != nil {
		return nil, err
	}
	serving, err := tls.X509KeyPair(certs.Cert, certs.Key)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &Server{listener: listener, handler: newHandler(reg, client), serving: serving, caBundle: certs.CA}, nil
}

// Port is the TCP port that Listen got.
func (s *Server) Port() int32 {
	return int32(s.listener.Addr().(*net.TCPAddr).Port)
}

// CABundle is the PEM certificate that the APIService must trust.
func (s *Server) CABundle() []byte { return s.caBundle }

// EndWatches ends the watches that are open now, as a server does after minutes: the next one of the same
// client goes where the APIService points to then. Without kinds it ends all. It may be called any number of times.
func (s *Server) EndWatches(kinds ...string) { s.handler.watches.end(kinds) }

// Serve answers until ctx ends, then ends watches, waits briefly for other requests, and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	srv := &http.Server{
		Handler:           s.handler.mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{s.serving}, MinVersion: tls.VersionTLS12},
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(s.listener, "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	return srv.Close()
}

// Start listens on a free port, serves in the background and registers: everything that a test needs
// in one call. stop ends the server, returns what Serve returned and may be called once; the APIService
// stays. ctx bounds the start only.
func Start(ctx context.Context, cfg *rest.Config, reg *resources.Registry) (stop func() error, err error) {
	srv, err := Listen(cfg, reg, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(serving) }()
	stop = func() error {
		cancel()
		return <-done
	}
	if err := Register(ctx, cfg, srv.Port(), srv.CABundle()); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}
