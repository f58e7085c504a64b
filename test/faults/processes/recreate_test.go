package processes

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A migration of the same name is another one. It takes over nothing, and ends right,
// whatever nobody saw of the one before.
func TestRecreatedWhileNobodyLooks(t *testing.T) {
	dir, m := machine(t)
	repeat(t, experiment{name: "deleted and recreated while no manager runs", all: 20, some: 1, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		manager := w.manager(t, "--phases-dir", dir)
		w.start(t, nil)
		w.underTheLock(t, random)
		manager.Kill()
		w.remove(t) // its finalizer keeps it
		if random.IntN(2) == 0 {
			manager = w.manager(t, "--phases-dir", dir)
			pause(upTo(random, time.Second)) // some of it is released
			manager.Kill()
		}
		began := time.Now()
		w.manager(t, "--phases-dir", dir)
		w.until(t, "the first to be gone", isGone)
		p := w.watch(t, m)
		w.start(t, nil)
		w.until(t, "the gate", atGate(beforeConverged))
		p.check(t, invariants.AtGate, time.Since(began), soon)
		w.giveBack(t, m)
		return time.Since(began)
	}})
}

// Who removes a finalizer by hand, and the state, leaves a lock, a fence, copies and objects
// without owners behind. The next migration says so, and goes on once the page's commands were
// run. With the state, a manager releases all of it.
func TestFinalizerAndStateRemoved(t *testing.T) {
	dir, _ := machine(t)
	repeat(t, experiment{name: "finalizer and state removed by hand under the lock", all: 3, some: 0, run: func(t *testing.T, random *rand.Rand) time.Duration {
		w := pristine(t)
		manager := w.manager(t, "--phases-dir", dir)
		w.start(t, nil)
		w.until(t, "the lock", func(dm *migration) bool { return dm != nil && dm.Status.Machine.IsHeld("v1Owners") })
		pause(upTo(random, 2*time.Second))
		manager.Kill()
		w.remove(t)
		w.shell(t, `kubectl patch datastoremigration `+setup.MigrationName+` --type=merge -p '{"metadata":{"finalizers":null}}'
			kubectl get machinestates -o name | xargs -I% kubectl patch % --type=merge -p '{"metadata":{"finalizers":null}}'
			kubectl delete machinestates --all`)
		w.until(t, "the first to be gone", isGone)

		w.manager(t, "--phases-dir", dir)
		w.start(t, nil)
		w.until(t, "the reason why it waits", func(dm *migration) bool {
			return dm != nil && strings.Contains(dm.Status.Message, "locked by a DatastoreMigration that is gone, UID ")
		})
		began := time.Now()
		giveBack, resolve := instructions(t)
		w.shell(t, giveBack)
		asking := func(dm *migration) bool {
			return dm != nil && dm.Status.Machine.Phase == "WaitingForConflictResolution"
		}
		dm := w.until(t, "the gate, or a conflict", func(dm *migration) bool { return asking(dm) || atGate(beforeConverged)(dm) })
		if asking(dm) { // the first had died before its copies got their owners
			if dm.Status.Machine.IsHeld("v1Lock") {
				t.Errorf("v1 is locked while a person is waited for: %s", dm.Status.Message)
			}
			w.shell(t, resolve)
			w.until(t, "the gate", atGate(beforeConverged))
		}
		w.spent = true // by what the first had done besides
		return time.Since(began)
	}})
}

// instructions are what the page says to run, from the last three blocks of its section.
func instructions(t *testing.T) (giveBack, resolve string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "operate", "break-glass.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A migration that is gone\n")
	section, _, _ = strings.Cut(section, "\n## ") // the next section has commands of its own
	blocks := strings.Split(section, "```sh\n")
	if len(blocks) < 4 {
		t.Fatal("the page has no commands for a migration that is gone")
	}
	commands := func(fromEnd int) string {
		block, _, _ := strings.Cut(blocks[len(blocks)-fromEnd], "```")
		return block
	}
	return commands(3) + commands(2), commands(1)
}

// shell runs commands as an administrator.
func (w *world) shell(t *testing.T, commands string) {
	t.Helper()
	kubectl, err := harness.Binary(filepath.Join("tools", "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "PATH="+filepath.Dir(kubectl)+":"+filepath.Dir(filepath.Dir(kubectl))+":"+os.Getenv("PATH"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, said)
	}
}
