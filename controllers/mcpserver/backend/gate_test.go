package backend_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

const stamp = v1beta1.AnnotationGeneration

// theirs makes a StatefulSet as the peer's proxy leaves it: stamped on the pods
// only, without an owner. No stamp if the text is empty.
func (w *world) theirs(stamped string) {
	w.Helper()
	labels := map[string]string{"app": "fetch", "toolhive": "true", v1beta1.LabelName: "fetch"}
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.config.Namespace, Name: "fetch", Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "fetch", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "fetch"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mcp", Image: "example.org/fetch:theirs"}}}},
		},
	}
	if stamped != "" {
		s.Spec.Template.Annotations = map[string]string{stamp: stamped}
	}
	w.applyAsProxy(s)
}

// What becomes of the objects; package freeze has all that decides.
func TestDeployWorkload_RunConfigMCPServerGenerationGate(t *testing.T) {
	const ours, peers = "example.org/fetch:1", "example.org/fetch:theirs"
	type result struct {
		Skipped  bool
		Image    string
		OnObject string
		OnPods   string
	}
	for name, test := range map[string]struct {
		why        string
		generation int64
		stale      bool
		exists     bool
		stamped    string
		want       result
	}{
		"no_existing_sts":               {"the first proxy makes it", 5, false, false, "", result{false, ours, "5", "5"}},
		"existing_sts_older_annotation": {"a rollout goes on", 5, false, true, "4", result{false, ours, "5", "5"}},
		"existing_sts_newer_annotation": {"the only case that is left alone", 5, false, true, "6", result{true, peers, "", "6"}},
		"zero_options_generation":       {"the gate is off, the annotation stays", 0, false, true, "6", result{false, ours, "", "6"}},
		"stale, equal":                  {"an old pod with a new file has nothing new to say", 5, true, true, "5", result{true, peers, "", "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.exists {
				w.theirs(test.stamped)
			}
			got := w.deploy(w.with(func(cfg *backend.Config) { cfg.Run.MCPServerGeneration, cfg.Stale = test.generation, test.stale }))
			if got.Host != "mcp-fetch" {
				t.Errorf("host %q, want mcp-fetch, skipped or not", got.Host)
			}
			live := w.live()
			if diff := cmp.Diff(test.want, result{got.Skipped, imageOf(live), live.Annotations[stamp], live.Spec.Template.Annotations[stamp]}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if made := w.service("mcp-fetch") != nil; made == test.want.Skipped {
				t.Errorf("Service made: %v, skipped: %v", made, test.want.Skipped)
			}
		})
	}
}

// Between the look and the write of an old proxy, the new one applies.
func TestGateHoldsForWhatWasRead(t *testing.T) {
	for name, exists := range map[string]bool{"changed in between": true, "created in between": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if exists {
				w.deploy(w.with(func(cfg *backend.Config) { cfg.Image, cfg.Run.MCPServerGeneration = "example.org/fetch:0", 4 }))
			}
			newer := w.with(func(cfg *backend.Config) { cfg.Image, cfg.Run.MCPServerGeneration = "example.org/fetch:2", 6 })
			w.beforeWrite = func() {
				w.beforeWrite = nil
				if _, err := backend.Deploy(t.Context(), w.admin, newer); err != nil {
					t.Error(err)
				}
			}
			want := backend.Result{Skipped: true, Why: "StatefulSet fetch is of generation 6, this proxy of 5", Host: "mcp-fetch"}
			if diff := cmp.Diff(want, w.deploy(w.config)); diff != "" {
				t.Errorf("what it read was gone when it wrote (-want +got):\n%s", diff)
			}
			if got := imageOf(w.live()); got != "example.org/fetch:2" {
				t.Errorf("image %s, want the newer proxy's", got)
			}
		})
	}
}

// What was changed last decides whether pods are replaced, not what was applied last.
func TestPodsAreReplacedOnlyForTheirContent(t *testing.T) {
	for name, test := range map[string]struct {
		why     string
		change  func(*backend.Config)
		replace bool
	}{
		"nothing":       {"a look is not a change", func(*backend.Config) {}, false},
		"backend count": {"more pods of the same kind", func(cfg *backend.Config) { cfg.Run.ScalingConfig = scale(3) }, false},
		"listener":      {"the proxy's port is not the backend's business", func(cfg *backend.Config) { cfg.Run.Port = 9090 }, false},
		"image":         {"another program", func(cfg *backend.Config) { cfg.Image = "example.org/fetch:2" }, true},
		"environment":   {"programs read it once", func(cfg *backend.Config) { cfg.Run.EnvVars = map[string]string{"A": "2"} }, true},
		"pod template":  {"asked for", func(cfg *backend.Config) { cfg.PodPatch = []byte(`{"metadata":{"labels":{"team":"a"}}}`) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deploy(w.config)
			before := w.live().Spec.Template
			w.deploy(w.with(func(cfg *backend.Config) { cfg.Run.MCPServerGeneration = 6; test.change(cfg) }))
			live := w.live()
			if replaced := !cmp.Equal(before, live.Spec.Template); replaced != test.replace {
				t.Errorf("pods replaced: %v, want %v: %s\n%s", replaced, test.replace, test.why, cmp.Diff(before, live.Spec.Template))
			}
			want := map[bool]string{true: "6", false: "5"}[test.replace]
			if got := [2]string{live.Annotations[stamp], live.Spec.Template.Annotations[stamp]}; got != [2]string{"6", want} {
				t.Errorf("stamps on object and pods %v, want 6 and %s", got, want)
			}
		})
	}
}
