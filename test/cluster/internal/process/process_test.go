package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestOwns(t *testing.T) {
	tests := map[string]struct {
		line, environ string
		want          bool
		why           string
	}{
		"by argument":         {line: "etcd\x00--data-dir=/tmp/a/etcd\x00", want: true, why: "a server names its files"},
		"by environment":      {line: "sleep\x0060\x00", environ: "A=b\x00PHASEGATE_CLUSTER=/tmp/a\x00", want: true, why: "any program started here is marked"},
		"neighbor's argument": {line: "etcd\x00--data-dir=/tmp/ab/etcd\x00", why: "/tmp/ab is another cluster"},
		"neighbor's mark":     {line: "sleep\x00", environ: "PHASEGATE_CLUSTER=/tmp/ab\x00", why: "/tmp/ab is another cluster"},
		"stranger":            {line: "vim\x00notes\x00", environ: "HOME=/root\x00", why: "process ids are given again"},
		"zombie":              {why: "an ended process shows nothing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Home("/tmp/a").owns([]byte(tc.line), []byte(tc.environ)); got != tc.want {
				t.Errorf("got %v, want %v: %s", got, tc.want, tc.why)
			}
		})
	}
}

// Stop must spare a process that was given the id of one of ours.
func TestStopSparesStrangers(t *testing.T) {
	home := Home(t.TempDir())
	elsewhere := Home(t.TempDir())
	stranger, err := elsewhere.Start("stranger", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := elsewhere.Stop(time.Second, "stranger"); err != nil {
			t.Error(err)
		}
	})
	ours, err := home.Start("ours", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if home.Running("ours") == 0 {
		t.Fatal("a process just started is not running")
	}
	reused := strconv.Itoa(elsewhere.Running("stranger"))
	if err := os.WriteFile(home.PidFile("reused"), []byte(reused+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := home.Stop(5*time.Second, home.Recorded()...); err != nil {
		t.Fatal(err)
	}
	<-ours.Exited
	select {
	case <-stranger.Exited:
		t.Error("the stranger was ended")
	default:
	}
	if left := home.Recorded(); len(left) != 0 {
		t.Errorf("still recorded: %v", left)
	}
}

// What Start returns is running at once: exec is known to have been done before /proc shows whose the process
// is. Of many started at once, 2 in 1,000 were not shown yet.
func TestStartedIsRunning(t *testing.T) {
	home := Home(t.TempDir())
	var starts sync.WaitGroup
	for starter := range 8 {
		starts.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("%d-%d", starter, i)
				if _, err := home.Start(name, "/bin/sleep", "600"); err != nil {
					t.Error(err)
				} else if home.Running(name) == 0 {
					t.Errorf("%s is not running", name)
				}
			}
		})
	}
	starts.Wait()
	if err := home.Stop(time.Second, home.Recorded()...); err != nil {
		t.Error(err)
	}
}

// A process that does not heed SIGTERM is killed.
func TestStopKills(t *testing.T) {
	home := Home(t.TempDir())
	ready := filepath.Join(string(home), "ready")
	child, err := home.Start("stubborn", "/bin/bash", "-c", `trap "" TERM; touch "$0"; while :; do sleep 0.1; done`, ready)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
		select {
		case <-child.Exited:
			t.Fatal(home.Tail("stubborn", 5))
		default:
		}
	}
	if err := home.Stop(50*time.Millisecond, "stubborn"); err != nil {
		t.Fatal(err)
	}
	<-child.Exited
}
