package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// Each finding is told once: not again when another file is refused.
func TestRefusedFileIsToldOnThePod(t *testing.T) {
	dir := t.TempDir()
	store, err := machinestore.Load(machinestore.Options{
		Shipped: fstest.MapFS{}, Dir: dir, Log: logr.Discard(),
		Bindings: func(*fsm.Definition) (fsm.Bindings, error) { return fsm.Bindings{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = "manager-0", "phasegate-system"
	teller := &runner.PodEventSource{Store: store, Recorder: recorder, Pod: func(context.Context) *corev1.Pod { return pod }}
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, start := range []func(context.Context) error{store.Start, teller.Start} {
		ended.Go(func() {
			if err := start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer ended.Wait()
	defer cancel()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("colour: red"), 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case told := <-recorder.Events:
			if want := regexp.MustCompile("^Warning MachineRefused .*" + name + ":1:1: PG000: .*colour"); !want.MatchString(told) {
				t.Errorf("told %q, want %q", told, want)
			}
		case <-time.After(harness.Patience):
			t.Fatalf("nobody tells of %s", name)
		}
	}
}
