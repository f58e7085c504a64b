package fakeapiserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	demoSize = 600
	workers  = 16
)

// cfg reaches the API server that all tests of this package share: the one of KUBECONFIG, which must not
// hold Calico objects, or a new one. It holds both sets of CRDs and the demo's v1 objects.
var cfg *rest.Config

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cluster, err := harness.Start(ctx, harness.Options{Without: []string{"fakenodes", "scheduler"}})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	cfg = cluster.Config
	set, err := crds.Load(resources.Default())
	if err != nil {
		return 1, err
	}
	if err := crds.Install(ctx, cfg, set); err != nil {
		return 1, err
	}
	if err := fixture.Create(ctx, cfg, fixture.Demo(1, demoSize), workers); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
