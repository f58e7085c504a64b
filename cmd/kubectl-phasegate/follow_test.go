package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/controllers/overview"
	"github.com/phasegate/phasegate/fsm"
)

func machineOf(t *testing.T) *fsm.Machine {
	t.Helper()
	m, err := chooseMachine(streams{}, shipped, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// in is a migration in a phase.
func in(phase string) live.Migration {
	dm := &migration{}
	dm.Name, dm.Status.Machine.Phase = "to-v3", phase
	return live.Migration{DatastoreMigration: dm}
}

func TestFollow(t *testing.T) {
	gone := apierrs.NewNotFound(schema.GroupResource{Resource: "datastoremigrations"}, "to-v3")
	forbidden := apierrs.NewForbidden(schema.GroupResource{Resource: "datastoremigrations"}, "to-v3", nil)
	seen := func(phase string) func() (live.Migration, error) {
		return func() (live.Migration, error) { return in(phase), nil }
	}
	fails := func(err error) func() (live.Migration, error) {
		return func() (live.Migration, error) { return live.Migration{}, err }
	}
	cases := map[string]struct {
		why   string
		looks []func() (live.Migration, error) // the last one again and again
		limit time.Duration
		code  int
		told  []string
	}{
		"complete":      {"the end", []func() (live.Migration, error){seen("Migrating"), seen("Complete")}, 0, 0, []string{" Pending", " Migrating", " Complete"}},
		"failed":        {"told as a failure", []func() (live.Migration, error){seen("RollingBack"), seen("Failed")}, 0, exitFindings, []string{" Pending", " RollingBack", " Failed"}},
		"waits":         {"nothing moves before somebody acts", []func() (live.Migration, error){seen("WaitingForConflictResolution")}, 0, exitWaits, []string{" Pending", " WaitingForConflictResolution"}},
		"goes on":       {"it was resolved a moment ago", []func() (live.Migration, error){seen("WaitingForConflictResolution"), seen("Complete")}, 0, 0, []string{" Pending", " WaitingForConflictResolution", " Complete"}},
		"deleted":       {"somebody has aborted it, and it has ended", []func() (live.Migration, error){seen("Aborting"), fails(gone)}, 0, 0, []string{" Pending", " Aborting", "to-v3 is gone: it was in Aborting."}},
		"replaced":      {"another one of the name is not it", []func() (live.Migration, error){fails(errReplaced)}, 0, 0, []string{" Pending", "to-v3 is gone: it was in Pending."}},
		"server away":   {"it comes back", []func() (live.Migration, error){fails(errors.New("connection refused")), seen("Complete")}, 0, 0, []string{" Pending", "connection refused", " Complete"}},
		"right revoked": {"it would never end", []func() (live.Migration, error){fails(forbidden)}, 0, exitUsage, []string{" Pending", "forbidden"}},
		"too long":      {"--timeout", []func() (live.Migration, error){seen("Migrating")}, 700 * time.Millisecond, exitTimedOut, []string{" Pending", " Migrating", "not after 700ms: it goes on in Migrating"}},
	}
	m := machineOf(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			look := 0
			f := follower{machine: m, patience: time.Second, read: func(context.Context) (live.Migration, error) {
				look = min(look+1, len(c.looks))
				return c.looks[look-1]()
			}}
			var errs bytes.Buffer
			s := streams{err: &errs}
			var end watched
			err := finish(t.Context(), s, c.limit, func(ctx context.Context) (err error) {
				end, err = f.follow(ctx, overview.Of(m, in("Pending"), time.Now()), s, overview.View{})
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
	}
}

func TestPicture(t *testing.T) {
	seen := sight{overview: overview.Of(machineOf(t), in("Migrating"), time.Now()), err: errors.New("connection refused")}
	text := seen.picture(overview.View{})
	for _, part := range []string{"● [Migrating]", "‼ not seen since", "connection refused", "Ctrl-C leaves"} {
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
