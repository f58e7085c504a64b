// Package owners_test lets the real garbage collector look on while v1 and v3 change
// places: what belongs to something in Calico must survive.
package owners_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // retries are no news here
	os.Exit(m.Run())
}
