package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// blackHole is a machine that asks a host, and has something to do at the end.
const blackHole = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: site-check}
spec:
  for: {apiVersion: example.com/v1, kind: SiteCheck}
  initial: Waiting
  finalizer: example.com/site-check
  phases:
  - {name: Waiting, steps: [{wait: 8s}], next: [{to: Checking}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Leaving}}
  - name: Checking
    steps:
    - {name: Ask, action: HTTPRequest, with: {url: '${self.spec.url}', timeout: 20s}, until: 'result.status == 200', poll: 1s}
    next: [{to: Up}]
    timeout: {after: 24h, stalled: NoAnswer}
    retry: {base: 1s, max: 1s}
    onDelete: {to: Leaving}
  - {name: Up, terminal: success, onDelete: {to: Leaving}}
  - {name: Leaving, deletion: true, next: [{to: Deleted}]}
  - {name: Deleted, deletion: true, end: true}
`

// A host that takes connections and never answers keeps no other object waiting, and no deletion.
func TestBlackHole(t *testing.T) {
	const stuck = 20
	w := pristine(t)
	w.apply(t, "site-check/crd.yaml")
	w.alsoGrant(t, "site-check/rbac.yaml")
	t.Cleanup(func() { w.kubectl(t, "delete", "--wait=false", "crd/sitechecks.example.com") })
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hole.Close() })
	var asked atomic.Int32
	go func() {
		for {
			if _, err := hole.Accept(); err != nil {
				return
			}
			asked.Add(1)
		}
	}()
	phases := t.TempDir()
	if err := os.WriteFile(filepath.Join(phases, "site-check.yaml"), []byte(blackHole), 0o600); err != nil {
		t.Fatal(err)
	}
	w.manager(t, "--phases-dir", phases, "--allow-http-host", hole.Addr().String(), "--allow-private-http", "127.0.0.0/8")
	check := func(name string) string {
		return fmt.Sprintf("---\napiVersion: example.com/v1\nkind: SiteCheck\nmetadata: {name: %s}\nspec: {url: 'http://%s/'}\n", name, hole.Addr())
	}
	var all strings.Builder
	for i := range stuck {
		all.WriteString(check(fmt.Sprintf("stuck-%d", i)))
	}
	file := filepath.Join(t.TempDir(), "checks.yaml")
	if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, "apply", "-f", file)
	harness.Eventually(t, "the host to be asked", func() error { return nilUnless(asked.Load() >= 4, fmt.Sprint(asked.Load())) })

	began := time.Now()
	w.kubectl(t, "delete", "--timeout=3m", "sitecheck/stuck-19")
	took := time.Since(began)
	t.Logf("the deletion of one of %d objects took %s; the host was asked %d times", stuck, took.Round(time.Millisecond), asked.Load())
	if took > 10*time.Second {
		t.Errorf("the deletion waited %s behind a host that does not answer", took.Round(time.Millisecond))
	}
	w.kubectl(t, "delete", "--timeout=3m", "sitechecks", "--all")
}
