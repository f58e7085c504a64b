// Package calico runs programs of a Calico release against the test control plane: its API server in the
// place of our stand-in, its admission webhooks, kube-controllers, calicoctl, and the IPAM plugin that a new pod asks. It builds and
// fetches none of them: EnvDir names the directory of a release that somebody has.
//
// It knows how these programs are started and asked, and nothing of the migration.
package calico

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/phasegate/phasegate/test/support/harness"
)

// EnvDir names the environment variable with the directory of the programs.
const EnvDir = "CALICO_BIN"

// Program is one of a release, by the name of its executable.
type Program string

// The programs that are used here.
const (
	APIServer       Program = "apiserver"
	KubeControllers Program = "kube-controllers"
	Calicoctl       Program = "calicoctl"
	IPAM            Program = "calico-ipam"
	CNI             Program = "calico"
	Webhooks        Program = "calico-webhooks"
)

// combined is the one program that newer releases have for all. Asked with the variables of CNI it is the CNI plugin, whose
// program has the same name in older ones.
const combined = "calico"

// inCombined are the arguments that make the one program another. The IPAM plugin takes none: its name decides.
var inCombined = map[Program][]string{
	APIServer: {"component", "apiserver"}, KubeControllers: {"component", "kube-controllers"}, Calicoctl: {"ctl"}, IPAM: nil,
	Webhooks: {"component", "webhooks", "webhook"},
}

// inOwn are the arguments of a program that is on its own and has several commands.
var inOwn = map[Program][]string{Webhooks: {"webhook"}}

// Release is a directory of programs.
type Release struct{ dir string }

// ForTest is the release of EnvDir. Where one of the programs is not in it, the test is skipped as not run.
func ForTest(t testing.TB, programs ...Program) Release {
	t.Helper()
	r := Release{os.Getenv(EnvDir)}
	for _, p := range programs {
		if _, _, err := r.find(p); err != nil {
			t.Skipf("not run: it takes programs of a Calico release: %v", err)
		}
	}
	return r
}

// find is the executable of a program, and the arguments that come first.
func (r Release) find(p Program) (path string, first []string, err error) {
	if r.dir == "" {
		return "", nil, fmt.Errorf("find %s: %s names no directory", p, EnvDir)
	}
	path = filepath.Join(r.dir, string(p))
	_, err = os.Stat(path)
	if err == nil {
		return path, inOwn[p], nil
	}
	one := filepath.Join(r.dir, combined)
	if _, oneErr := os.Stat(one); oneErr != nil {
		return "", nil, fmt.Errorf("find %s: %w", p, err)
	}
	return one, inCombined[p], nil
}

// Command is a program that is asked once. What is added to env wins over the environment of this program.
func (r Release) Command(ctx context.Context, p Program, env []string, args ...string) (*exec.Cmd, error) {
	path, first, err := r.find(p)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append(first, args...)...)
	cmd.Args[0] = string(p)
	cmd.Env = append(os.Environ(), env...)
	return cmd, nil
}

// start runs a program in the background, with a log of its own.
func (r Release) start(c *harness.Cluster, p Program, env []string, args ...string) (*harness.Process, error) {
	path, first, err := r.find(p)
	if err != nil {
		return nil, err
	}
	return harness.StartProcess(harness.Program{Name: "calico-" + string(p), Path: path, Args: append(first, args...), Env: env, LogDir: c.LogDir})
}

// datastore are the variables with which every program of a release finds its datastore.
func datastore(kubeconfig string) []string {
	return []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + kubeconfig}
}
