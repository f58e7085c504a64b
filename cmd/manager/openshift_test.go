package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

func TestOpenShift(t *testing.T) {
	const has, hasNot, fails = "has", "has not", "fails"
	for name, c := range map[string]struct {
		why, flag string
		answers   []string
		// want is one answer each time; asked is how often the API server was asked.
		want  []string
		asked int32
	}{
		"detected":      {"nobody should have to say it", "auto", []string{has, fails}, []string{"true", "true"}, 1},
		"not there":     {"most clusters are none, and do not become one", "auto", []string{hasNot, fails}, []string{"false", "false"}, 1},
		"not answered":  {"a guess would make pods that are refused", "auto", []string{fails, has}, []string{"error", "true"}, 2},
		"said":          {"a person knows better", "true", nil, []string{"true"}, 0},
		"said that not": {"so does this one", "false", []string{has}, []string{"none"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := c.answers[asked.Add(1)-1]
				if answer == fails {
					http.Error(w, "no", http.StatusInternalServerError)
					return
				}
				group := map[string]string{has: openShiftGroup, hasNot: "apps"}[answer]
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":%q}]}`, group)
			}))
			defer api.Close()
			is := (&options{openShift: c.flag}).openShiftOf(&rest.Config{Host: api.URL})
			for i, want := range c.want {
				got := "none"
				if is != nil {
					answer, err := is(context.Background())
					if got = fmt.Sprint(answer); err != nil {
						got = "error"
					}
				}
				if got != want {
					t.Errorf("answer %d is %s, want %s: %s", i, got, want, c.why)
				}
			}
			if asked.Load() != c.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), c.asked)
			}
		})
	}
	if err := (&options{openShift: "yes"}).validateOpenShift(); err == nil {
		t.Error("a value that means nothing is taken")
	}
}
