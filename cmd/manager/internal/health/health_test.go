package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/manager/internal/health"
)

func TestHandler(t *testing.T) {
	check := func(name, note string, err error) health.Check {
		return health.Check{Name: name, Ask: func(context.Context) (string, error) { return note, err }}
	}
	good, noted, bad := check("good", "", nil), check("noted", "standby", nil), check("bad", "unheard", errors.New("no answer"))
	cases := map[string]struct {
		why    string
		path   string
		checks []health.Check
		code   int
		body   string
	}{
		"all is well":       {why: "the kubelet reads the code only", path: "/", checks: []health.Check{good, noted}, code: http.StatusOK, body: "ok"},
		"nothing to check":  {why: "it answers, that is all that is asked", path: "/", code: http.StatusOK, body: "ok"},
		"verbose":           {why: "people want to know who leads", path: "/?verbose", checks: []health.Check{good, noted}, code: http.StatusOK, body: "[+]good ok\n[+]noted ok: standby\n"},
		"one fails":         {why: "whoever asks wants to know why", path: "/", checks: []health.Check{good, bad}, code: http.StatusServiceUnavailable, body: "[+]good ok\n[-]bad failed: no answer\n"},
		"the others follow": {why: "one fault must not hide the next", path: "/?verbose", checks: []health.Check{bad, noted}, code: http.StatusServiceUnavailable, body: "[-]bad failed: no answer\n[+]noted ok: standby\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			health.Handler(c.checks...).ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
			if w.Code != c.code {
				t.Errorf("code %d, want %d: %s", w.Code, c.code, c.why)
			}
			if diff := cmp.Diff(c.body, w.Body.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// However many probes come, there is one question in a period; a failure is kept
// no longer than a success.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		ask := health.Kept(5*time.Second, func(ctx context.Context) (string, error) {
			if asked++; asked == 1 {
				return "", errors.Join(errors.New("down"), ctx.Err())
			}
			return fmt.Sprintf("answer %d", asked), nil
		})
		hungUp, cancel := context.WithCancel(t.Context())
		cancel()
		var probes sync.WaitGroup
		for range 20 {
			probes.Go(func() {
				if _, err := ask(hungUp); err == nil || err.Error() != "down" {
					t.Errorf("got %v, want the one answer, whoever asks", err)
				}
			})
		}
		probes.Wait()
		if asked != 1 {
			t.Errorf("asked %d times for 20 probes", asked)
		}
		time.Sleep(5*time.Second - 1)
		if note, err := ask(t.Context()); note != "" || err == nil {
			t.Errorf("got %q, %v, want what was heard before", note, err)
		}
		time.Sleep(time.Nanosecond)
		if note, err := ask(t.Context()); note != "answer 2" || err != nil {
			t.Errorf("got %q, %v, want a new answer", note, err)
		}
	})
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pulse health.Pulse
		within := pulse.Within(30 * time.Second)
		time.Sleep(time.Hour)
		if note, err := within(t.Context()); note != "not begun" || err != nil {
			t.Errorf("got %q, %v of a loop that has not begun", note, err)
		}
		pulse.Beat()
		time.Sleep(30 * time.Second)
		if _, err := within(t.Context()); err != nil {
			t.Errorf("got %v at the limit", err)
		}
		time.Sleep(time.Second)
		if _, err := within(t.Context()); err == nil || !strings.Contains(err.Error(), "31s") {
			t.Errorf("got %v, want for how long it has been silent", err)
		}
		pulse.Beat()
		if _, err := within(t.Context()); err != nil {
			t.Errorf("got %v after a beat", err)
		}
	})
}
