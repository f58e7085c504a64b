package mcpserver

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
)

// TestCheckSpec goes through the API server, which stores what the checks look at.
func TestCheckSpec(t *testing.T) {
	type seen struct{ Reason, Message string }
	for name, test := range map[string]struct {
		why    string
		change func(*v1beta1.MCPServerSpec)
		want   *seen
	}{
		"nothing wrong": {"the server goes on", func(*v1beta1.MCPServerSpec) {}, nil},
		"without effect": {"it is told, and the server goes on",
			func(s *v1beta1.MCPServerSpec) {
				s.TelemetryConfigRef = &apiextensionsv1.JSON{Raw: []byte(`{"name":"a"}`)}
			}, nil},
		"two things": {"all is told at once, under the reason of the first", func(s *v1beta1.MCPServerSpec) {
			s.OIDCConfigRef = &apiextensionsv1.JSON{Raw: []byte(`{"name":"a","audience":"b"}`)}
			s.PodTemplateSpec = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":"x"}}`)}
		}, &seen{"NotEnforced", "this proxy does not enforce spec.oidcConfigRef, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"oidcConfigRef\"; " +
			"spec.podTemplateSpec is not a pod template: json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := httpServer
			test.change(&spec)
			w := newWorld(t, spec)
			_, err := do(t.Context(), w.client, w.srv, "CheckSpec")
			var terminal *fsm.TerminalError
			var got *seen
			if errors.As(err, &terminal) {
				got = &seen{terminal.Reason, err.Error()}
			} else if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// A new spec may come while EnsureWorkload is what the phase waits for, so that the
// next look goes on with it and passes CheckSpec by.
func TestNothingIsMadeForASpecThatCannotBeUsed(t *testing.T) {
	w := newWorld(t, httpServer)
	w.ensure()
	before := w.deployment()
	w.edit(w.srv, `{"spec":{"image":"example.org/fetch:2","oidcConfigRef":{"name":"a","audience":"b"}}}`)
	w.writes = 0
	_, refused := do(t.Context(), w.client, w.srv, "EnsureWorkload")
	_, seen := do(t.Context(), w.client, w.srv, "ObserveWorkload")
	_, want := do(t.Context(), w.client, w.srv, "CheckSpec")
	type says struct{ Reason, Message string }
	told := func(err error) says {
		var terminal *fsm.TerminalError
		if !errors.As(err, &terminal) {
			t.Fatalf("error = %v, want a terminal one", err)
		}
		return says{terminal.Reason, err.Error()}
	}
	for step, err := range map[string]error{"EnsureWorkload": refused, "ObserveWorkload": seen} {
		if diff := cmp.Diff(told(want), told(err)); diff != "" {
			t.Errorf("what CheckSpec says is what stops %s (-want +got):\n%s", step, diff)
		}
	}
	if diff := cmp.Diff(before, w.deployment()); w.writes > 0 || diff != "" {
		t.Errorf("%d writes; a server that asks for protection is not rolled out without it (-before +after):\n%s", w.writes, diff)
	}
}
