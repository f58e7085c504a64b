package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// An edit of the mounted machines takes effect in a migration that is under way, without a restart; one that
// is wrong does not, and the migration goes on.
func TestReload(t *testing.T) {
	w := pristine(t)
	data, err := os.ReadFile(filepath.Join(gated(t), machineFile))
	if err != nil {
		t.Fatal(err)
	}
	file := string(data)
	mount := newMount(t)
	mount.set(t, file)
	manager := w.manager(t, "--phases-dir", mount.dir)
	w.start(t, setup.MigrationName, "begin")
	w.awaitGate(t, setup.MigrationName, "begin")

	mount.set(t, edited(t, file, "to: Migrating", "to: Migratng"))
	told := w.awaitEvent(t, "MachineRefused")
	if !regexp.MustCompile(machineFile + `:\d+:\d+: PG001: .*"Migratng" does not exist`).MatchString(told) {
		t.Errorf("Event MachineRefused names file, line, column and code: %s", told)
	}
	w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore("locked")})
	before := w.awaitGate(t, setup.MigrationName, "locked") // with the last good machine

	began := time.Now()
	file = edited(t, file, gateMessage("locked"), "at an edited gate")
	mount.set(t, file)
	harness.Eventually(t, "the edit to take effect", func() error {
		return nilIf(w.read(t, setup.MigrationName).Status.Message == "at an edited gate")
	})
	t.Logf("an edit took effect after %s", time.Since(began)) // two looks, a second apart; 5 s are promised
	if err := manager.Alive(); err != nil {
		t.Error(err)
	}
	after := w.read(t, setup.MigrationName).Status.Machine
	if after.Phase != before.Status.Machine.Phase || len(after.History) != len(before.Status.Machine.History) || after.Revision != before.Status.Machine.Revision {
		t.Errorf("phase %s, revision %s, %d transitions: a message is no other revision", after.Phase, after.Revision, len(after.History))
	}
	mount.set(t, edited(t, file, "after: 168h", "after: 167h"))
	harness.Eventually(t, "another revision", func() error {
		after = w.read(t, setup.MigrationName).Status.Machine
		return nilIf(after.Revision != before.Status.Machine.Revision)
	})
	if was := before.Status.Machine; after.Phase != was.Phase || len(after.History) != len(was.History) || after.StepIndex != was.StepIndex || after.Step != was.Step {
		t.Errorf("phase %s, step %s, number %d, %d transitions: only the revision changes", after.Phase, after.Step, after.StepIndex, len(after.History))
	}
	if told := w.awaitEvent(t, "MachineReloaded"); !strings.Contains(told, after.Revision) {
		t.Errorf("Event MachineReloaded names the revision %s: %s", after.Revision, told)
	}
	w.remove(t, setup.MigrationName)
}

// edited replaces a text that is there once or more.
func edited(t *testing.T, file, old, replacement string) string {
	t.Helper()
	if !strings.Contains(file, old) {
		t.Fatalf("the machine does not say %q", old)
	}
	return strings.Replace(file, old, replacement, 1)
}

// mount is a directory as the kubelet makes it of a ConfigMap: names that lead through ..data to a directory
// of this moment, which a rename exchanges as a whole.
type mount struct {
	dir  string
	made int
}

func newMount(t *testing.T) *mount {
	t.Helper()
	m := &mount{dir: t.TempDir()}
	if err := os.Symlink(filepath.Join("..data", machineFile), filepath.Join(m.dir, machineFile)); err != nil {
		t.Fatal(err)
	}
	return m
}

// set exchanges the machine file.
func (m *mount) set(t *testing.T, file string) {
	t.Helper()
	m.made++
	moment := fmt.Sprintf("..%d", m.made)
	next := filepath.Join(m.dir, "..data_tmp")
	for _, err := range []error{
		os.Mkdir(filepath.Join(m.dir, moment), 0o700),
		os.WriteFile(filepath.Join(m.dir, moment, machineFile), []byte(file), 0o600),
		os.Symlink(moment, next),
		os.Rename(next, filepath.Join(m.dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitEvent returns the message of an Event about the migration.
func (w *world) awaitEvent(t *testing.T, reason string) string {
	t.Helper()
	var said string
	harness.Eventually(t, "Event "+reason, func() error {
		said = w.kubectl(t, "get", "events", "-A", "--field-selector=reason="+reason, "-o", "jsonpath={.items[*].message}")
		return nilIf(strings.TrimSpace(said) != "")
	})
	return said
}
