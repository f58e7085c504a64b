package harness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

func TestAwait(t *testing.T) {
	stopped := errors.New("stopped by the user")
	cases := map[string]struct {
		why string
		met func(n int, giveUp context.CancelCauseFunc) error
		// want is the error's text, took how long it was waited.
		want string
		took time.Duration
	}{
		"at once": {
			why: "no pause before the first look",
			met: func(int, context.CancelCauseFunc) error { return nil },
		},
		"the third time": {
			why: "two polls of 25 ms",
			met: func(n int, _ context.CancelCauseFunc) error {
				if n < 3 {
					return errors.New("not yet")
				}
				return nil
			},
			took: 50 * time.Millisecond,
		},
		"never": {
			why:  "the last reason is what helps",
			met:  func(int, context.CancelCauseFunc) error { return errors.New("2 of 3 are ready") },
			want: "waited for pods: not within 1s: 2 of 3 are ready", took: time.Second,
		},
		"permanent": {
			why: "no waiting for what cannot come",
			met: func(n int, _ context.CancelCauseFunc) error {
				if n == 2 {
					return harness.Permanent(errors.New("it crashed"))
				}
				return errors.New("not yet")
			},
			want: "waited for pods: will not happen, seen after 25ms: it crashed", took: 25 * time.Millisecond,
		},
		"given up": {
			why: "the end of the test is not the timeout",
			met: func(n int, giveUp context.CancelCauseFunc) error {
				if n == 2 {
					giveUp(stopped)
				}
				return errors.New("not yet")
			},
			want: "waited for pods: given up after 25ms (stopped by the user): not yet", took: 25 * time.Millisecond,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, giveUp := context.WithCancelCause(t.Context())
				defer giveUp(nil)
				begun, n := time.Now(), 0
				err := harness.Await(ctx, "pods", time.Second, func(context.Context) error { n++; return tc.met(n, giveUp) })
				got := ""
				if err != nil {
					got = err.Error()
				}
				if got != tc.want {
					t.Errorf("%s: error = %q, want %q", tc.why, got, tc.want)
				}
				if took := time.Since(begun); took != tc.took {
					t.Errorf("%s: it took %s, want %s", tc.why, took, tc.took)
				}
			})
		})
	}
}

func TestAwaitTellsTheReasonBeforeTheTimeoutCutIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := harness.Await(t.Context(), "pods", time.Second, func(ctx context.Context) error {
			if n++; n == 1 {
				return errors.New("no pod is ready")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if want := "waited for pods: not within 1s: no pod is ready"; err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	})
}
