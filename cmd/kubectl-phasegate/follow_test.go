package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
)

// in is a migration in a phase.
func in(t *testing.T, phase string) statusview.Overview {
	t.Helper()
	m, err := chooseMachine(streams{}, shipped)
	if err != nil {
		t.Fatal(err)
	}
	o, err := statusview.Of(m, live.Object{Kind: migrationKind, Name: "to-v3", Machine: v1alpha1.MachineStatus{Phase: phase}}, time.Now(), statusview.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFollow(t *testing.T) {
	gone := apierrs.NewNotFound(schema.GroupResource{Resource: "datastoremigrations"}, "to-v3")
	notServed := apierrs.NewGenericServerResponse(404, "get", schema.GroupResource{Resource: "datastoremigrations"}, "to-v3", "404 page not found", 0, true)
	forbidden := apierrs.NewForbidden(schema.GroupResource{Resource: "datastoremigrations"}, "to-v3", nil)
	type look = func() (statusview.Overview, error)
	seen := func(phase string) look {
		return func() (statusview.Overview, error) { return in(t, phase), nil }
	}
	fails := func(err error) look {
		return func() (statusview.Overview, error) { return statusview.Overview{}, err }
	}
	cases := map[string]struct {
		why   string
		looks []look // the last one again and again
		limit time.Duration
		code  int
		told  []string
	}{
		"complete":      {"the end", []look{seen("Migrating"), seen("Complete")}, 0, 0, []string{" Pending", " Migrating", " Complete"}},
		"failed":        {"told as a failure", []look{seen("RollingBack"), seen("Failed")}, 0, exitFindings, []string{" Pending", " RollingBack", " Failed"}},
		"waits":         {"nothing moves before somebody acts", []look{seen("WaitingForConflictResolution")}, 0, exitWaits, []string{" Pending", " WaitingForConflictResolution"}},
		"goes on":       {"it was resolved a moment ago", []look{seen("WaitingForConflictResolution"), seen("Complete")}, 0, 0, []string{" Pending", " WaitingForConflictResolution", " Complete"}},
		"deleted":       {"somebody has aborted it, and it has ended", []look{seen("Aborting"), fails(gone)}, 0, 0, []string{" Pending", " Aborting", "to-v3 is gone: it was in Aborting."}},
		"replaced":      {"another one of the name is not it", []look{fails(errReplaced)}, 0, 0, []string{" Pending", "to-v3 is gone: it was in Pending."}},
		"server away":   {"it comes back", []look{fails(errors.New("connection refused")), seen("Complete")}, 0, 0, []string{" Pending", "connection refused", " Complete"}},
		"not served":    {"the API server has just started: that is not the end of the object", []look{fails(notServed), seen("Complete")}, 0, 0, []string{" Pending", "could not find the requested resource", " Complete"}},
		"right revoked": {"it would never end", []look{fails(forbidden)}, 0, exitUsage, []string{" Pending", "forbidden"}},
		"too long":      {"--timeout", []look{seen("Migrating")}, 700 * time.Millisecond, exitTimedOut, []string{" Pending", " Migrating", "timed out after 700ms: it is still in Migrating"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its time is not the machine's: a loaded one looks as often
				look := 0
				f := follower{patience: time.Second, look: func(context.Context) (statusview.Overview, error) {
					look = min(look+1, len(c.looks))
					return c.looks[look-1]()
				}}
				var errs bytes.Buffer
				s := streams{err: &errs}
				var end sight
				err := finish(t.Context(), s, c.limit, func(ctx context.Context) (err error) {
					end, err = f.follow(ctx, in(t, "Pending"), s, statusview.View{})
					return err
				})
				if err == nil {
					err = end.code(s)
				}
				code := 0
				if err != nil {
					code = exitCode(s, err)
				}
				lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
				if code != c.code || len(lines) != len(c.told) {
					t.Fatalf("%s: exit code %d, want %d, told %d times:\n%s", c.why, code, c.code, len(lines), errs.String())
				}
				for i, part := range c.told {
					if !strings.Contains(lines[i], part) {
						t.Errorf("%s: line %d does not say %q: %s", c.why, i, part, lines[i])
					}
				}
			})
		})
	}
}

func TestPicture(t *testing.T) {
	seen := sight{overview: in(t, "Migrating"), err: errors.New("connection refused")}
	text := seen.picture(statusview.View{})
	for _, part := range []string{"● [Migrating]", "‼ not seen since", "connection refused", "Ctrl-C stops watching"} {
		if !strings.Contains(text, part) {
			t.Errorf("a terminal does not show %q:\n%s", part, text)
		}
	}
}

func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		why, text     string
		width, height int
		want          string
	}{
		"fits":     {"as it is", "a\nb", 2, 5, "a \nb "},
		"too wide": {"a command must not be cut", "kubectl get x", 8, 5, "kubectl \nget x   "},
		"too high": {"the middle goes: what to do is at the end", "1\n2\n3\n4\n5\n6", 1, 4, "1\n2\n…\n6"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fit(c.text, c.width, c.height)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
