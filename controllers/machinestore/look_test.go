package machinestore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that is being written is not judged, and one that was refused is judged
// again once it changes: also back to what it was.
func TestLooks(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": door("2s")}.write(t, dir)
	s := load(t, options(dir))
	type seen struct {
		Poll    string
		Refused bool
		Told    bool
	}
	changed := s.Changed()
	look := func(f files) seen {
		f.write(t, dir)
		s.look(t.Context())
		h := s.Of("door")
		got := seen{Poll: h.InForce().Definition().Spec.Phases[0].Steps[0].Poll, Refused: h.Refused() != ""}
		select {
		case <-changed:
			got.Told, changed = true, s.Changed()
		default:
		}
		return got
	}
	half := files{"mine.yaml": door("3s")[:100]}
	whole := files{"mine.yaml": door("3s")}
	bad := files{"mine.yaml": unbound(door("4s"))}
	got := []seen{look(half), look(whole), look(whole), look(whole), look(bad), look(bad), look(bad), look(whole), look(whole)}
	want := []seen{
		{Poll: "2s"}, {Poll: "2s"}, {Poll: "3s", Told: true}, {Poll: "3s"},
		{Poll: "3s"}, {Poll: "3s", Refused: true, Told: true}, {Poll: "3s", Refused: true},
		{Poll: "3s", Refused: true}, {Poll: "3s", Told: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("looks (-want +got):\n%s", diff)
	}
}

// The kubelet mounts a ConfigMap as links into a directory that it exchanges.
func TestConfigMapVolume(t *testing.T) {
	dir := t.TempDir()
	version := func(name, poll string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		files{"mine.yaml": door(poll)}.write(t, filepath.Join(dir, name))
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_01", "2s")
	if err := os.Symlink(filepath.Join("..data", "mine.yaml"), filepath.Join(dir, "mine.yaml")); err != nil {
		t.Fatal(err)
	}
	s := load(t, options(dir))
	version("..2026_02", "3s")
	if err := os.RemoveAll(filepath.Join(dir, "..2026_01")); err != nil {
		t.Fatal(err)
	}
	s.lookTwice(t)
	if diff := cmp.Diff(map[string]string{"door": "3s mine.yaml"}, s.state(t, dir).InForce); diff != "" {
		t.Errorf("in force after the swap (-want +got):\n%s", diff)
	}
}

// A directory that goes away takes no machine with it.
func TestDirectoryGone(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": door("2s"), "gate.yaml": gate("2s")}.write(t, dir)
	s := load(t, options(dir))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.lookTwice(t)
	want := map[string]string{"door": "2s mine.yaml", "gate": "2s gate.yaml"}
	if diff := cmp.Diff(want, s.state(t, dir).InForce); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
}
