package mcpserver

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// These tests ask the manager what it does, and so run while no other does
// anything: they are not parallel.

var (
	writes     = regexp.MustCompile(`(?m)^rest_client_requests_total\{.*method="(?:POST|PUT|PATCH|DELETE)".*\} (\S+)$`)
	reconciles = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="phasegate-mcpserver".*\} (\S+)$`)
	waitings   = regexp.MustCompile(`(?m)^workqueue_depth\{.*name="phasegate-mcpserver".*\} (\S+)$`)
	running    = regexp.MustCompile(`(?m)^controller_runtime_active_workers\{controller="phasegate-mcpserver".*\} (\S+)$`)
)

// awaitOldPodsGone waits until the pods of before a restart are gone: one of the proxy and one of the server are left.
func (s *space) awaitOldPodsGone() {
	s.t.Helper()
	harness.Eventually(s.t, "the pods of before the restart to be gone", func() error {
		pods := 0
		for name := range s.versions() {
			if strings.HasPrefix(name, "Pod ") {
				pods++
			}
		}
		if pods > 2 {
			return fmt.Errorf("%d pods", pods)
		}
		return nil
	})
}

func TestSteadyStateWritesNothing(t *testing.T) {
	s := readySpace(t)
	s.annotate("fetch", map[string]string{v1beta1.AnnotationRestartedAt: request})
	s.awaitRestarted("fetch", request)
	s.awaitOldPodsGone()
	s.awaitIdle()
	status, versions, pods, begun := s.get("fetch").Status, s.versions(), s.workload("fetch"), s.count(writes)
	if begun == 0 {
		t.Fatal("a server became Ready without a write: the manager's metrics have other names")
	}

	for i := range 20 {
		s.touch("fetch", i)
	}
	s.awaitIdle()
	if sent := s.count(writes) - begun; sent != 0 {
		t.Errorf("20 reconciles of a Ready server sent %d writes", sent)
	}
	if diff := cmp.Diff(versions, s.versions()); diff != "" {
		t.Errorf("20 reconciles changed something (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(status, s.get("fetch").Status); diff != "" {
		t.Errorf("20 reconciles changed the status (-before +after):\n%s", diff)
	}

	if err := s.manager.Stop(20 * time.Second); err != nil {
		t.Fatalf("the manager does not end as asked: %v", err)
	}
	if err := s.startManager(); err != nil {
		t.Fatal(err)
	}
	s.touch("fetch", 20)
	s.awaitIdle()
	if sent := s.count(writes); sent != 0 {
		t.Errorf("a manager that starts sent %d writes", sent)
		t.Log(s.kubectl("get", "mcpserver", "--all-namespaces", "-o", "yaml"))
	}
	if diff := cmp.Diff(pods, s.workload("fetch")); diff != "" {
		t.Errorf("a manager that starts restarts what was restarted (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(versions, s.versions()); diff != "" {
		t.Errorf("a manager that starts changed something (-before +after):\n%s", diff)
	}
}

// touch changes an annotation that concerns nobody, and waits until the manager
// has looked at the server again.
func (s *space) touch(name string, i int) {
	s.t.Helper()
	before, _ := s.tryCount(reconciles) // a manager that has just been started has no metrics yet
	s.annotate(name, map[string]string{"example.org/touched": strconv.Itoa(i)})
	harness.Eventually(s.t, "a reconcile", func() error {
		now, err := s.tryCount(reconciles)
		if err != nil {
			return err
		}
		if now <= before {
			return errors.New("none yet")
		}
		return nil
	})
}

// awaitIdle waits until the manager has nothing to do at the moment.
func (s *space) awaitIdle() {
	s.t.Helper()
	last := map[string]int{}
	harness.Eventually(s.t, "the manager to be idle", func() error {
		now := map[string]int{}
		for name, metric := range map[string]*regexp.Regexp{"waiting": waitings, "running": running, "reconciles": reconciles} {
			var err error
			if now[name], err = s.tryCount(metric); err != nil {
				return err
			}
		}
		quiet := now["waiting"] == 0 && now["running"] == 0 && maps.Equal(now, last)
		last = now
		if !quiet {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
}

func (s *space) count(metric *regexp.Regexp) int {
	s.t.Helper()
	n, err := s.tryCount(metric)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// tryCount adds up the samples of the manager's metrics.
func (s *space) tryCount(metric *regexp.Regexp) (int, error) {
	answer, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, sample := range metric.FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(sample[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += int(value)
	}
	return sum, nil
}
