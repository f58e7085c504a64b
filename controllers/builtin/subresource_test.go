package builtin

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// What an expression came to is refused for the same reasons as what a file says plainly.
func TestPatchFlaw(t *testing.T) {
	fields := func(names ...string) map[string]any {
		all := map[string]any{}
		for _, name := range names {
			all[name] = map[string]any{}
		}
		return all
	}
	replicas := func(n any) map[string]any { return map[string]any{"spec": map[string]any{"replicas": n}} }
	type flaw struct{ Path, Reason string }
	for name, c := range map[string]struct {
		why         string
		subresource any
		patch       map[string]any
		want        flaw
	}{
		"object":             {"what Patch is for", nil, fields("spec", "metadata"), flaw{}},
		"status unasked":     {"the API server drops it silently", nil, fields("spec", "status"), flaw{"patch.status", "StatusRefused"}},
		"status":             {"the other way round", "status", fields("status"), flaw{}},
		"beside the status":  {"the API server drops it silently", "status", fields("metadata", "status"), flaw{"patch.metadata", "InvalidPatch"}},
		"scale":              {"a number of replicas", "scale", replicas(int64(0)), flaw{}},
		"beside the scale":   {"it is no part of a Scale", "scale", fields("metadata", "spec"), flaw{"patch.metadata", "InvalidPatch"}},
		"beside the number":  {"the same", "scale", map[string]any{"spec": fields("replica")}, flaw{"patch.spec.replica", "InvalidPatch"}},
		"no number":          {"a merge patch with null would scale to zero", "scale", replicas(nil), flaw{"patch.spec", "InvalidPatch"}},
		"nothing of a scale": {"it would do nothing, silently", "scale", map[string]any{}, flaw{"patch.spec", "InvalidPatch"}},
		"another part":       {"no rights are derived for it", "ephemeralcontainers", fields("spec"), flaw{"subresource", "BadParameter"}},
	} {
		t.Run(name, func(t *testing.T) {
			with := fsm.Params{"patch": c.patch}
			if c.subresource != nil {
				with["subresource"] = c.subresource
			}
			path, err := patchFlaw(with)
			got := flaw{Path: path}
			if terminal, is := errors.AsType[*fsm.TerminalError](err); is {
				got.Reason = terminal.Reason
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
		})
	}
}

// A role grants what a call does, and nothing else.
func TestAccessToSubresources(t *testing.T) {
	deployment := func(more fsm.Params) fsm.Params {
		with := fsm.Params{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
		for name, value := range more {
			with[name] = value
		}
		return with
	}
	for name, c := range map[string]struct {
		why    string
		action string
		with   fsm.Params
		want   []string
	}{
		"object": {"nothing of a subresource", "Patch", deployment(nil), []string{"get deployments.apps shop", "patch deployments.apps shop"}},
		"status": {"the object is read, and only its status written", "Patch", deployment(fsm.Params{"subresource": "status"}),
			[]string{"get deployments.apps shop", "patch deployments/status.apps shop"}},
		"scale": {"the object is read for its resourceVersion", "Patch", deployment(fsm.Params{"subresource": "scale"}),
			[]string{"get deployments.apps shop", "get deployments/scale.apps shop", "patch deployments/scale.apps shop"}},
		"eviction": {"the name is found when it is called", "Evict", fsm.Params{"name": "${self.spec.pod}", "namespace": "shop"},
			[]string{"get pods in namespace shop", "create pods/eviction in namespace shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, access := range Access(c.action, c.with) {
				for _, need := range access.Needs("x", rbac.Guess) {
					got = append(got, need.String())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
