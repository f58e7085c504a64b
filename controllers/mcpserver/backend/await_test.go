package backend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

func TestAwaitSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.deploy(w.config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := backend.Await(ctx, w.admin, w.config.Namespace, "fetch")
	if want := "StatefulSet fetch has not been looked at yet by its controller"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestAwaitReturnsWhenPodsAreReady(t *testing.T) {
	w := newWorld(t)
	w.deploy(w.config)
	done := make(chan error, 1)
	go func() { done <- backend.Await(t.Context(), w.admin, w.config.Namespace, "fetch") }()

	live := w.live()
	live.Status.ObservedGeneration, live.Status.Replicas, live.Status.UpdatedReplicas, live.Status.ReadyReplicas = live.Generation, 1, 1, 1
	if err := w.admin.Status().Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAwaitOfNothingIsAnError(t *testing.T) {
	w := newWorld(t)
	err := backend.Await(t.Context(), w.admin, w.config.Namespace, "fetch")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "StatefulSet "+w.config.Namespace+"/fetch") {
		t.Errorf("error %v, want NotFound with the name", err)
	}
}
