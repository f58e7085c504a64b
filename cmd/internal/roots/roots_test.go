package roots

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asked makes the test print what it finds, in a process that began without roots.
const asked = "PHASEGATE_TEST_ROOTS"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	pool, err := x509.SystemCertPool()
	fmt.Println(err == nil && !pool.Equal(x509.NewCertPool()))
}

func TestImageWithoutCertificates(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	nowhere := t.TempDir()
	cmd.Env = append(os.Environ(), asked+"=1", "SSL_CERT_FILE="+nowhere+"/none", "SSL_CERT_DIR="+nowhere)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "true" {
		t.Errorf("in an image without certificates no https server can be trusted: %s %v", out, err)
	}
}
