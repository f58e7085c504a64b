package crdgate

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReady(t *testing.T) {
	cases := map[string]struct {
		why     string
		slow    bool
		failing []error
		script  func(*rig)
		// note is in the answer of a gate that is ready, fault in that of one that is not.
		note, fault string
	}{
		"not started":        {why: "a standby is ready to take over", note: "only the leader"},
		"no CRD":             {why: "nothing is to run", script: func(r *rig) { r.set("") }, note: "waits for CRD doors.example.org"},
		"running":            {why: "all is well", script: func(r *rig) { r.set("a") }, note: "runs for CRD doors.example.org"},
		"another version":    {why: "nobody drives its objects, and nothing else would say so", script: func(r *rig) { r.set("a!") }, fault: "not v1, which this manager needs"},
		"returned by itself": {why: "objects are not driven meanwhile", failing: []error{errors.New("broken")}, script: func(r *rig) { r.set("a") }, fault: "does not run"},
		"started again": {why: "the pause is over", failing: []error{errors.New("broken")}, note: "runs",
			script: func(r *rig) { r.set("a"); time.Sleep(firstRest); synctest.Wait() }},
		"an old copy still ends": {why: "it is not that of the CRD that is there", slow: true, script: func(r *rig) { r.set("a"); r.set("b") }, fault: "does not run"},
		"the CRD has gone":       {why: "nothing is to run any more", script: func(r *rig) { r.set("a"); r.set("") }, note: "waits for CRD"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := &Gate{CRDName: "doors.example.org"}
				r := newRig(tc.slow, tc.failing...)
				r.seen = &gate.seen
				if tc.script != nil {
					go r.serve(t.Context())
					tc.script(r)
				}
				note, err := gate.Ready(t.Context())
				if tc.fault == "" && (err != nil || !strings.Contains(note, tc.note)) {
					t.Errorf("got %q, %v, want %q: %s", note, err, tc.note, tc.why)
				}
				if tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
					t.Errorf("got %q, %v, want an error with %q: %s", note, err, tc.fault, tc.why)
				}
				close(r.leave)
			})
		})
	}
}
