package mcpserver

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Times of requests, in order.
const (
	earlier = "2026-05-01T10:00:00Z"
	request = "2026-05-02T10:00:00Z"
	later   = "2026-05-03T10:00:00+02:00"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{v1beta1.StrategyRolling, v1beta1.StrategyImmediate} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			before := s.workload("fetch")

			s.annotate("fetch", map[string]string{
				v1beta1.AnnotationRestartedAt: request, v1beta1.AnnotationRestartStrategy: strategy,
			})
			s.awaitRestarted("fetch", request)
			s.assertReplaced("fetch", before)
			s.describes("fetch", "RestartRequested", "Restarted", v1beta1.AnnotationLastProcessedRestart+": "+request)
			after := s.workload("fetch")
			want := before
			want.ReplicaSets, want.Revisions, want.Restart = before.ReplicaSets+1, before.Revisions+1, request+" "+request
			want.Proxies, want.Backends = after.Proxies, after.Backends
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("not restarted exactly once, with the time of the request (-want +got):\n%s", diff)
			}

			s.annotate("fetch", map[string]string{v1beta1.AnnotationRestartedAt: earlier})
			s.pass("fetch")
			if diff := cmp.Diff(after, s.workload("fetch")); diff != "" {
				t.Errorf("an older request, or the same one again, replaced something (-before +after):\n%s", diff)
			}

			s.annotate("fetch", map[string]string{v1beta1.AnnotationRestartedAt: later})
			s.awaitRestarted("fetch", later)
			s.assertReplaced("fetch", after)
			if last := s.workload("fetch"); last.ReplicaSets != after.ReplicaSets+1 || last.Revisions != after.Revisions+1 {
				t.Errorf("a second restart is one restart:\n%s", cmp.Diff(after, last))
			}
		})
	}
}

// awaitRestarted waits until a request has been acted on, and the server is Ready.
func (s *space) awaitRestarted(name, token string) {
	s.t.Helper()
	s.until(name, "restarted", func(srv *v1beta1.MCPServer) error {
		if last := srv.Annotations[v1beta1.AnnotationLastProcessedRestart]; last != token {
			return fmt.Errorf("the last request that was acted on is %q", last)
		}
		if srv.Status.Phase != "Ready" {
			return errors.New("not Ready")
		}
		return nil
	})
}

// pass waits until the manager has looked at the server as it is now: it gives it
// a change that concerns the proxy's Service only.
func (s *space) pass(name string) {
	s.t.Helper()
	s.edit(name, func(srv *v1beta1.MCPServer) {
		if srv.Spec.SessionAffinity == "None" {
			srv.Spec.SessionAffinity = "ClientIP"
		} else {
			srv.Spec.SessionAffinity = "None"
		}
	})
	s.until(name, "looked at", func(srv *v1beta1.MCPServer) error {
		if srv.Status.ObservedGeneration != srv.Generation {
			return fmt.Errorf("generation %d observed, want %d", srv.Status.ObservedGeneration, srv.Generation)
		}
		return nil
	})
}

func TestRestartRequestThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why    string
		set    map[string]string
		reason string
		// repair makes it a request for a restart at the time of request.
		repair map[string]string
	}{
		"time": {
			why: "nobody may believe that the server was restarted",
			set: map[string]string{v1beta1.AnnotationRestartedAt: "yesterday"}, reason: v1beta1.ReasonInvalidRestartTimestamp,
			repair: map[string]string{v1beta1.AnnotationRestartedAt: request},
		},
		"strategy": {
			why:    "immediate with a typing error is not rolling",
			set:    map[string]string{v1beta1.AnnotationRestartedAt: request, v1beta1.AnnotationRestartStrategy: "imediate"},
			reason: v1beta1.ReasonInvalidRestartStrategy, repair: map[string]string{v1beta1.AnnotationRestartStrategy: v1beta1.StrategyImmediate},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := readySpace(t)
			before := s.workload("fetch")

			s.annotate("fetch", c.set)
			s.awaitCondition("fetch", v1beta1.ConditionRestartRequestValid, "False", c.reason)
			s.describes("fetch", "Warning "+c.reason)
			s.pass("fetch")
			if diff := cmp.Diff(before, s.workload("fetch")); diff != "" {
				t.Errorf("%s, but something was replaced (-before +after):\n%s", c.why, diff)
			}
			if last, found := s.get("fetch").Annotations[v1beta1.AnnotationLastProcessedRestart]; found {
				t.Errorf("%s, but it is recorded as done: %s", c.why, last)
			}

			s.annotate("fetch", c.repair)
			s.awaitRestarted("fetch", request)
			s.awaitNoCondition("fetch", v1beta1.ConditionRestartRequestValid)
			s.assertReplaced("fetch", before)
		})
	}
}
