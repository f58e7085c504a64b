package live

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// The restart of an MCP server takes a time that is later than the last one: two
// in one second were refused once.
func TestTokensOfOneSecondAreToldApart(t *testing.T) {
	machine := fsmtest.Machine(t, "../../../../phases/mcpserver.yaml", catalog.BindingsOf("mcpserver"))
	restart := machine.Requests()[0]
	at := time.Date(2026, 3, 4, 12, 0, 0, 250_000_000, time.UTC)
	server := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "fetch"}}}
	var st v1alpha1.MachineStatus
	for _, want := range []string{"2026-03-04T12:00:00Z", "2026-03-04T12:00:00.25Z"} {
		token, takes := Token(machine, restart, st, server.Object, at)
		if !takes || token != want {
			t.Fatalf("token %q, want %q", token, want)
		}
		st.Requests = []v1alpha1.RequestStatus{{Name: restart.Name, Token: token}}
		server.SetAnnotations(map[string]string{"mcpserver.toolhive.stacklok.dev/last-processed-restart": token})
	}
	if token, takes := Token(machine, restart, st, server.Object, at); takes {
		t.Errorf("the same moment again gives %q", token)
	}
}
