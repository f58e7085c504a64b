package e2e

import (
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/scene"
)

func TestLifecycle(t *testing.T) {
	s := scene.ForTest(t, scene.Options{Objects: fixture.Demo(1, 1000), Say: t.Logf})
	p, err := s.StartManager()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { t.Log(p.Tail(80)); _ = p.Stop(10 * time.Second) }()
	if err := s.Migrate(t.Context(), scene.MigrationName); err != nil {
		t.Fatal(err)
	}
	dm, err := s.AwaitPhase(t.Context(), scene.MigrationName, "Converged", 45*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range dm.Status.Machine.History { t.Log(h.From, h.To, h.Took.Duration, h.Reason, h.Message) }
	if err := fixture.SwitchComponents(t.Context(), s.Client, scene.CalicoNamespace); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AwaitPhase(t.Context(), scene.MigrationName, "Complete", 45*time.Second); err != nil {
		t.Fatal(err)
	}
	s.Client.Delete(t.Context(), dm)
	if err := s.AwaitGone(t.Context(), dm, 100*time.Second); err != nil {
		t.Fatal(err)
	}
}
