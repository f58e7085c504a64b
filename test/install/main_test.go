// Package install meets the product as its users do: a real helm installs the chart on
// a real control plane with RBAC, the manager's pods run as processes with the tokens
// of their own accounts, and nothing of ours has an administrator's rights.
//
// It is one story on one cluster, told in chapters (story_test.go). What the API server
// wrote down meanwhile then proves which right was needed. It knows nothing of how the
// chart or the manager work inside.
package install

import (
	"flag"
	"os"
	"testing"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var update = flag.Bool("update", false, "write testdata/can-i-*.txt as they are now")

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}
