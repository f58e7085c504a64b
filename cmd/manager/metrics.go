package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/phasegate/phasegate/controllers/rbac"
)

// The names that a Secret of type kubernetes.io/tls has when it is mounted.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

type metricsOptions struct {
	address string
	secure  bool
	certDir string
	objects bool
}

func (o *metricsOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "metrics-bind-address", none, `address of /metrics, such as :8443; "0" serves none`)
	f.BoolVar(&o.secure, "metrics-secure", true, "serve /metrics over HTTPS, to clients with permission to get it; false: over HTTP to all, for development")
	f.StringVar(&o.certDir, "metrics-cert-dir", "", "directory of tls.crt and tls.key for /metrics, reloaded on change; default: a self-signed certificate")
	f.BoolVar(&o.objects, "object-metrics", true, "serve series about each object of machines that have at most 500; false: only about those that are stalled or fail, and phasegate_objects, which counts all by phase, as of a machine with more")
}

func (o *metricsOptions) validate() error {
	if err := address("--metrics-bind-address", o.address); err != nil {
		return err
	}
	if o.certDir == "" {
		return nil
	}
	if !o.secure {
		return errors.New("--metrics-cert-dir: --metrics-secure=false serves without a certificate: leave one of the two out")
	}
	// controller-runtime would serve a self-signed one in its stead and say nothing.
	if _, err := tls.LoadX509KeyPair(filepath.Join(o.certDir, certFile), filepath.Join(o.certDir, keyFile)); err != nil {
		return fmt.Errorf("--metrics-cert-dir: %w: put %s and %s there", err, certFile, keyFile)
	}
	return nil
}

// needs is what asking about a scraper must be allowed.
func (o *metricsOptions) needs() []rbac.Need {
	if o.address == none || !o.secure {
		return nil
	}
	return rbac.Flatten("metrics over HTTPS",
		rbac.Rule("create", authenticationv1.GroupName, "tokenreviews"), rbac.Rule("create", authorizationv1.GroupName, "subjectaccessreviews"))
}

// server asks the cluster who a client is (TokenReview) and whether it may get
// /metrics (SubjectAccessReview); both answers are kept for a minute or more.
func (o *metricsOptions) server() metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.address}
	if !o.secure {
		return server
	}
	server.SecureServing = true
	server.FilterProvider = filters.WithAuthenticationAndAuthorization
	if o.certDir != "" {
		server.CertDir, server.CertName, server.KeyName = o.certDir, certFile, keyFile
	}
	// A scrape needs no streams, and without them their known attacks are gone.
	server.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	return server
}
