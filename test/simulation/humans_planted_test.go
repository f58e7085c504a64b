package simulation

import (
	"testing"
	"time"
)

// each changes the stored states before a pass, as a defect of the engine or of the driver would have stored them.
func each(change func(s *scene, status map[string]any)) func(*scene) {
	return func(s *scene) {
		for _, state := range s.all(stateKind, "") {
			s.edit(refOf(state), func(o object) {
				if status, ok := o.Object["status"].(map[string]any); ok {
					change(s, status)
				}
			})
		}
	}
}

// A simulation is worth what it finds: each of these defects must be found within some hundred schedules.
func TestDefectsThatPeopleShowAreFound(t *testing.T) {
	const within = 60
	restore, site, notes := examples["database-restore"], examples["site-check"], examples["notes"]
	forgets := each(func(_ *scene, status map[string]any) { delete(status, "notBefore") })
	for name, c := range map[string]struct {
		why     string
		of      *example
		changed []string
		planted func(*scene)
		only    []kind
		fails   bool
		// careless: actions look and then act.
		careless bool
		want     property
	}{
		"a wake-up is a try": {why: "what wakes an object uses up its attempts", of: restore, planted: forgets, only: []kind{annoys, outage, fails}, want: backoff},
		"a crash is a try":   {why: "what is only in memory is forgotten", of: restore, planted: forgets, only: []kind{crashes, outage, fails}, want: backoff},
		"a wake-up asks outside": {why: "a server is asked as often as somebody annotates the object", of: site, only: []kind{annoys}, want: early,
			planted: func(s *scene) { forgets(s); s.forget() }},
		"the next look is stored": {why: "5,000 objects that wait write 500 times a second", of: notes, only: []kind{annotates}, want: quiet,
			planted: func(s *scene) {
				for _, obj := range s.driven() {
					s.edit(refOf(obj), func(o object) {
						if status, ok := o.Object["status"].(map[string]any); ok && status["machine"] != nil {
							status["machine"].(map[string]any)["nextCheck"] = s.clock.Now().Format(time.RFC3339Nano)
						}
					})
				}
			}},
		"a comment is a change": {why: "the phase begins anew, and notes what it has changed itself", of: notes, only: []kind{comments}, want: restored,
			planted: each(func(s *scene, status map[string]any) {
				if s.file.edits > 1 { // the first is the file itself
					status["revision"] = "another"
					status["phaseRevision"] = "another"
				}
			})},
		"a renamed phase is another visit": {why: "the Job is started beside the one that runs", of: restore, only: []kind{renamesPhase}, want: twice, planted: anotherVisit()},
		"a token is remembered until the next": {why: "A, B, A acts three times", of: restore, fails: true, only: []kind{asks}, want: asked,
			planted: each(func(_ *scene, status map[string]any) {
				requests, _ := status["requests"].([]any)
				for _, q := range requests {
					delete(q.(map[string]any), "earlier")
				}
			})},
		"a claim without a precondition": {why: "two objects have one target", of: restore, careless: true, only: []kind{joins, annotates}, want: apart,
			changed: []string{"use: Apply\n    with:\n", "use: Apply\n    with:\n      notOurs: allow\n"}},
		"an abort without undo": {why: "the application stays stopped", of: examples["maintenance"], changed: []string{"    - {undo: held}\n    next:\n    - {to: Deleted}", "    next:\n    - {to: Deleted}"},
			only: []kind{asks, asks, deletes}, want: restored},
	} {
		t.Run(name, func(t *testing.T) {
			e := example{file: c.of.file, objects: c.of.objects, targets: c.of.targets, requests: c.of.requests, exclusive: c.of.exclusive, succeeds: c.of.succeeds, fails: c.fails, works: c.of.works, careless: c.careless, restores: c.of.restores,
				unproved: c.of.unproved, pace: c.of.pace, enough: c.of.enough, goOn: c.of.goOn, reconciler: c.of.reconciler, planted: c.planted, changed: c.changed, only: c.only}
			for seed := range uint64(within) {
				if said := human(&e, seed, e.draw(seed), c.want, nil)[c.want]; said != "" {
					t.Logf("seed %d: %s", seed, said)
					return
				}
			}
			t.Errorf("%s: not found with %d schedules", c.why, within)
		})
	}
}

// anotherVisit makes the visit that a renamed phase goes on with a new one.
func anotherVisit() func(*scene) {
	return each(func(_ *scene, status map[string]any) {
		delete(status, "enteredAs")
	})
}
