package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	applying "github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// What an answer has that nobody may read is kept in one Secret for each state. It belongs to the MachineState, so that it
// is there until all is released, and goes with it.

const (
	maxSecretOutputs = 16
	// maxSecretAnswer is how many bytes an answer may have of which secrets are kept.
	maxSecretAnswer = 256 << 10
	// savedOutputs is the entry of the state that says in which namespace the Secret is.
	savedOutputs = "secretOutputs"
	// outputsType is the type of the Secret: no other program makes one.
	outputsType = "phasegate.dev/secret-outputs"
	wholeBody   = "body"
)

// keepAnswer keeps what the parameters name of an answer. What a server says when it refuses has no secrets to be kept.
func (c *call) keepAnswer(ctx context.Context, status int, body []byte) (outputs, error) {
	out := outputs{"status": int64(status), "body": "", "truncated": false}
	if status < http.StatusOK || status >= http.StatusMultipleChoices {
		return out, nil
	}
	if len(body) > maxSecretAnswer {
		return nil, fsm.Terminal("TooLarge", "the answer has more than the %d bytes of which secret outputs are kept: ask for less", maxSecretAnswer)
	}
	found, lacking := outputsOf(body, c.with.Object("secretOutputs"))
	if len(lacking) > 0 {
		return nil, fsm.Wait("Waiting for an answer that has %s: the last one (status %d) has not", strings.Join(lacking, ", "), status)
	}
	return out, c.keepOutputs(ctx, found)
}

// outputsOf finds values in a body by their paths, and lists the paths that lead to nothing. What is no text is kept as JSON.
func outputsOf(body []byte, paths map[string]any) (found map[string]string, lacking []string) {
	var content any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&content) != nil {
		content = nil // its error would quote it
	}
	found = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		path, _ := paths[name].(string)
		value, is := at(content, strings.Split(path, ".")[1:])
		switch text, isText := value.(string); {
		case path == wholeBody && len(body) > 0:
			found[name] = string(body)
		case path == wholeBody || !is:
			lacking = append(lacking, path)
		case isText:
			found[name] = text
		default:
			data, _ := json.Marshal(value) // it came out of JSON
			found[name] = string(data)
		}
	}
	return found, lacking
}

// at is the value at a path, whose numbers lead into lists; null is none.
func at(value any, path []string) (any, bool) {
	for _, name := range path {
		switch x := value.(type) {
		case map[string]any:
			value = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			value = x[i]
		default:
			return nil, false
		}
	}
	return value, value != nil
}

// keepOutputs writes the step's keys of the Secret, and leaves those of other steps. A repeat of the request writes them again.
func (c *call) keepOutputs(ctx context.Context, values map[string]string) error {
	for _, value := range values {
		c.secrets.add(value)
	}
	namespace, err := c.outputsNamespace()
	if err != nil {
		return err
	}
	if err := c.save(ctx, savedOutputs, namespace); err != nil { // where there was no state, there is one now
		return err
	}
	at := c.outputsAt(namespace)
	live := object("v1", "Secret", at.Namespace, at.Name)
	found, err := c.find(ctx, live, outputsVerbs...)
	if err == nil && found {
		err = c.mayKeep(live)
	}
	if err != nil {
		return err
	}
	obj := object("v1", "Secret", at.Namespace, at.Name)
	obj.SetLabels(labels.Set{LabelOwner: string(c.owner.GetUID())})
	c.keep(obj)
	data := map[string]any{}
	for key, value := range values {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	obj.Object["type"], obj.Object["data"] = outputsType, data
	if obj.SetUID(live.GetUID()); !found {
		obj.SetResourceVersion(applying.NoVersion)
	}
	return c.explain(c.send(ctx, obj, true), "apply", live, outputsVerbs...)
}

// outputsNamespace is where the Secret is. There is one, so the first step that keeps anything decides.
func (c *call) outputsNamespace() (string, error) {
	namespace, err := c.secretNamespace(c.with.String("namespace", ""), "secretOutputs")
	if before := c.saved(savedOutputs); err == nil && before != "" && before != namespace {
		return "", fsm.Terminal("SecretElsewhere", "secretOutputs of %s are kept in namespace %s already, not in %s: give all steps the same one", c.owner.GetName(), before, namespace)
	}
	return namespace, err
}

// outputsAt is the Secret of the state: it has the state's name.
func (c *call) outputsAt(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: v1alpha1.MachineStateName(c.about.Machine, c.about.Object.UID)}
}

// ofState tells whether a Secret belongs to this state: another one of the name holds what somebody else put there.
func (c *call) ofState(secret *unstructured.Unstructured) bool {
	return slices.ContainsFunc(secret.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == c.stateUID() && r.UID != "" })
}

// mayKeep is an error where the Secret is none of this state.
func (c *call) mayKeep(live *unstructured.Unstructured) error {
	kind, _, _ := unstructured.NestedString(live.Object, "type")
	switch {
	case live.GetDeletionTimestamp() != nil, !c.ofState(live) && kind == outputsType:
		// The state was lost and is another one now: the garbage collector removes the Secret of the former.
		return fsm.Wait("%s is being deleted, and made again afterwards", title(live))
	case !c.ofState(live):
		return fsm.Terminal("NotOurs", "%s is there already, and does not belong to the MachineState of that name: delete it", title(live))
	}
	return nil
}

// areSecretOutputs are names of outputs, and where in the answer each is.
func areSecretOutputs(v any) error {
	paths, _ := v.(map[string]any)
	if len(paths) == 0 || len(paths) > maxSecretOutputs {
		return badParameter("%d secret outputs: give at least one and at most %d", len(paths), maxSecretOutputs)
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		path, _ := paths[name].(string)
		switch err := isPathOfBody(path); {
		case !expr.Identifier.MatchString(name):
			return badParameter("secret output %q: its name is not made of letters, digits and _, a letter first", name)
		case err != nil:
			return badParameter("secret output %s: %w", name, err)
		}
	}
	return nil
}

func isPathOfBody(path string) error {
	parts := strings.Split(path, ".")
	if parts[0] != wholeBody || slices.Contains(parts, "") {
		return errors.New("write body for the whole answer, or body.FIELD.FIELD for a part of its JSON")
	}
	return nil
}

// fillSecret makes data of the stringData of a Secret, with values in place of references: what an apply has in stringData,
// it does not own, and could not remove later.
func (c *call) fillSecret(ctx context.Context, obj *unstructured.Unstructured) error {
	if !isSecret(obj.GetAPIVersion(), obj.GetKind()) {
		return nil
	}
	given, _ := obj.Object["stringData"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		ref, err := fsm.AsSecretRef(given[key])
		if err != nil {
			return badReference(err)
		}
		value, isText := given[key].(string)
		if ref != nil {
			if value, err = c.valueOf(ctx, ref); err != nil {
				return err
			}
		} else if !isText {
			continue // the API server says what is wrong with it
		}
		if err := unstructured.SetNestedField(obj.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", key); err != nil {
			return fsm.Terminal("InvalidManifest", "data of %s is no object: correct the manifest", title(obj))
		}
		delete(given, key)
	}
	return nil
}
