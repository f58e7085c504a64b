package mcpserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/renamed"
)

// look is what people and tools see of a server, with the names of the shipped file.
func (s *space) look(name string) []string {
	s.t.Helper()
	srv := s.get(name)
	st := &srv.Status
	seen := []string{fmt.Sprintf("%s, in %s, holds %v, on delete %s", st.Phase, st.Machine.Phase, st.Machine.Held, st.Machine.OnDelete)}
	for _, c := range st.Conditions {
		seen = append(seen, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	for _, h := range st.Machine.History {
		seen = append(seen, fmt.Sprintf("%s → %s: %s", h.From, h.To, h.Reason))
	}
	families, err := harness.Scrape(s.t.Context(), http.DefaultClient, "http://"+s.metrics)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, metric := range []string{"phasegate_phase", "phasegate_ready", "phasegate_stalled"} {
		for _, m := range families.With(metric, "object", name, "namespace", s.ns) {
			text := metric
			for _, l := range m.GetLabel() {
				if l.GetName() != "namespace" {
					text += " " + l.GetValue()
				}
			}
			seen = append(seen, fmt.Sprint(text, " ", m.GetGauge().GetValue()))
		}
	}
	for i, text := range seen {
		seen[i] = renamed.Back(text)
	}
	slices.Sort(seen[1:]) // metrics are sorted by the names of phases
	return seen
}

// live is a server that is restarted, scaled to zero and deleted.
func (s *space) live(t *testing.T) (seen [][]string) {
	s.create("fetch")
	s.awaitPhase("fetch", "Ready")
	seen = append(seen, s.look("fetch"))
	s.annotate("fetch", map[string]string{v1beta1.AnnotationRestartedAt: request})
	s.awaitRestarted("fetch", request)
	seen = append(seen, s.look("fetch"))
	s.edit("fetch", func(srv *v1beta1.MCPServer) { srv.Spec.Replicas = ptr.To[int32](0) })
	s.awaitPhase("fetch", "Stopped")
	seen = append(seen, s.look("fetch"))
	if err := s.Client.Delete(t.Context(), s.get("fetch")); err != nil {
		t.Fatal(err)
	}
	s.awaitGone(&v1beta1.MCPServer{}, "fetch")
	return seen
}

// Go knows no name of a phase, step or reason: a file that calls all of them otherwise does the same.
func TestByOtherNames(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(root, "phases", "mcpserver.yaml"))
	if err == nil {
		file, err = renamed.File(file)
	}
	dir := t.TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "mcpserver.yaml"), file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err := worldOf("--phases-dir", dir)
	if other != nil {
		t.Cleanup(func() {
			if err := other.close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	got := spaceIn(t, other).live(t)
	if diff := cmp.Diff(newSpace(t).live(t), got); diff != "" {
		t.Errorf("(-shipped +renamed):\n%s", diff)
	}
}
