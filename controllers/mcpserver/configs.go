package mcpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// What is read of a configuration besides its spec. Its status is written by ToolHive's own
// controllers, if by any: what it says of an older spec counts for nothing.

// hashBytes of a hash are shown: enough to tell one content from another.
const hashBytes = 8

// hashOf is that which the status of a configuration tells of its present spec; else one of
// the spec, as JSON with sorted keys. It is empty for nil.
func hashOf(config *unstructured.Unstructured) (string, error) {
	if config == nil {
		return "", nil
	}
	if told, _, _ := unstructured.NestedString(config.Object, "status", "configHash"); told != "" && current(config, statusOf(config)) {
		return told, nil
	}
	text, err := json.Marshal(config.Object["spec"])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashBytes]), nil
}

// statusOf is nil where there is none.
func statusOf(config *unstructured.Unstructured) map[string]any {
	status, _ := config.Object["status"].(map[string]any)
	return status
}

// current tells whether a part of the status of a configuration is about its present spec: the first of
// parts that names a generation decides. A writer that names none does not count them.
func current(config *unstructured.Unstructured, parts ...map[string]any) bool {
	for _, part := range parts {
		if seen, _, _ := unstructured.NestedInt64(part, "observedGeneration"); seen != 0 {
			return seen == config.GetGeneration()
		}
	}
	return true
}

// validity is the condition Valid of a configuration while it is False, and about its present spec.
// ToolHive's controllers write it and leave the generation of the status at the last valid spec.
func validity(config *unstructured.Unstructured) (reason, message string, invalid bool) {
	status := statusOf(config)
	all, _, _ := unstructured.NestedSlice(status, "conditions")
	i := slices.IndexFunc(all, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == "Valid" && condition["status"] == "False"
	})
	if i < 0 {
		return "", "", false
	}
	condition := all[i].(map[string]any)
	if !current(config, condition, status) {
		return "", "", false
	}
	reason, _, _ = unstructured.NestedString(condition, "reason")
	message, _, _ = unstructured.NestedString(condition, "message")
	return reason, message, true
}

// readOf is all that is read of a configuration besides its spec, see runner.Reference.
func readOf(config *unstructured.Unstructured) string {
	hash, err := hashOf(config)
	if err != nil {
		return config.GetResourceVersion() // whatever it is, it is another one
	}
	phase, _, _ := unstructured.NestedString(config.Object, "status", "phase")
	reason, message, invalid := validity(config)
	return fmt.Sprintf("%q %q %t %q %q", hash, phase, invalid, reason, message)
}

// notValid is for a configuration that says itself that it is not valid.
func notValid(reason string) func(*server, *unstructured.Unstructured) *problem {
	return func(_ *server, config *unstructured.Unstructured) *problem {
		if _, message, invalid := validity(config); invalid {
			return newProblem(reason, "%s %s is not valid, as its status says: %s", config.GetKind(), config.GetName(), message)
		}
		return nil
	}
}

// mirrored is notValid with the reason that the configuration has.
func mirrored(srv *server, config *unstructured.Unstructured) *problem {
	reason, _, invalid := validity(config)
	if !invalid {
		return nil
	}
	return notValid(reason)(srv, config)
}

// authServerKind is about a reference of a kind that nobody knows.
func authServerKind(srv *server) *problem {
	const known = "MCPExternalAuthConfig"
	var ref struct{ Kind string }
	if srv.Spec.AuthServerRef == nil || json.Unmarshal(srv.Spec.AuthServerRef.Raw, &ref) != nil || ref.Kind == "" || ref.Kind == known {
		return nil
	}
	return newProblem(v1beta1.ReasonAuthServerRefInvalidKind, "spec.authServerRef names a %s: only %s is known", ref.Kind, known)
}

// noAuthServer is why a configuration is not that of one authorization server.
func noAuthServer(_ *server, config *unstructured.Unstructured) *problem {
	kind, _, _ := unstructured.NestedString(config.Object, "spec", "type")
	upstreams, _, _ := unstructured.NestedSlice(config.Object, "spec", "embeddedAuthServer", "upstreamProviders")
	switch {
	case kind != "embeddedAuthServer":
		return newProblem(v1beta1.ReasonAuthServerRefInvalidType, "spec.authServerRef: %s %s is of type %q: write embeddedAuthServer", config.GetKind(), config.GetName(), kind)
	case len(upstreams) > 1:
		return newProblem(v1beta1.ReasonAuthServerRefMultiUpstream, "spec.authServerRef: %s %s has %d upstream providers: an MCPServer can have one", config.GetKind(), config.GetName(), len(upstreams))
	}
	return nil
}

// groupNotReady is about an MCPGroup.
func groupNotReady(_ *server, group *unstructured.Unstructured) *problem {
	const ready = "Ready"
	phase, _, _ := unstructured.NestedString(group.Object, "status", "phase")
	if phase == ready {
		return nil
	}
	return newProblem(v1beta1.ReasonGroupRefNotReady, "MCPGroup %s is in phase %q: it is to be %s", group.GetName(), phase, ready)
}
