package builtin

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// A reference to a secret is replaced by its value when the action is called, in a copy of its parameters that nobody
// else sees. What others say of the call, in errors and answers, may quote it, and is shown without it.

// revealed is what a call has read of Secrets.
type revealed struct {
	data map[types.NamespacedName]map[string]string
	// forms are the values in each form in which a text could quote them.
	forms []string
}

// shortestHidden is how long a value must be to be searched for in texts of others: a shorter one would be found everywhere,
// and the gaps would tell it.
const shortestHidden = 4

// reveal is a copy of a value with what its references refer to.
func (c *call) reveal(ctx context.Context, value any) (any, error) {
	ref, err := fsm.AsSecretRef(value)
	switch {
	case err != nil:
		return nil, badReference(err)
	case ref != nil:
		return c.textOf(ctx, ref)
	}
	switch x := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if out[name], err = c.reveal(ctx, x[name]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			if out[i], err = c.reveal(ctx, item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

func badReference(err error) error {
	return badParameter("a reference to a secret cannot be read: %w: write {secret: {name: NAME, key: KEY}} or {secretOutput: NAME}", err)
}

// textOf is a value that goes into a request: JSON can say no other bytes, and would say something else without a word.
func (c *call) textOf(ctx context.Context, ref *fsm.SecretRef) (string, error) {
	value, err := c.valueOf(ctx, ref)
	if err == nil && !utf8.ValidString(value) {
		return "", fsm.Terminal("SecretUnusable", "%s cannot be sent: it is no text in UTF-8: correct the Secret", ref)
	}
	return value, err
}

// valueOf reads what a reference refers to.
func (c *call) valueOf(ctx context.Context, ref *fsm.SecretRef) (string, error) {
	at, key, err := c.whereIs(ref)
	if err != nil {
		return "", err
	}
	data, err := c.readSecret(ctx, at, ref)
	if err != nil {
		return "", err
	}
	value, found := data[key]
	if !found {
		return "", missing(ref, "Secret %s has no key %s", at, key)
	}
	c.secrets.add(value)
	if ref.Format != "" {
		value = strings.Replace(ref.Format, "%s", value, 1)
	}
	return value, nil
}

// whereIs is the Secret that has the value, and its key. An object reads no Secret of another namespace: who may write the
// object may not read that one.
func (c *call) whereIs(ref *fsm.SecretRef) (at types.NamespacedName, key string, err error) {
	if ref.Output != "" {
		return c.outputsAt(cmp.Or(c.owner.GetNamespace(), c.saved(savedOutputs))), ref.Output, nil
	}
	namespace, err := c.secretNamespace(ref.Namespace, ref.String())
	return types.NamespacedName{Namespace: namespace, Name: ref.Name}, ref.Key, err
}

// secretNamespace is that of the object, or the one that is given for an object without any.
func (c *call) secretNamespace(given, what string) (string, error) {
	own := c.owner.GetNamespace()
	switch {
	case own == "" && given == "":
		return "", fsm.Terminal("NamespaceMissing", "%s needs a namespace: %s has none that it could be in by default, give namespace", what, c.kind.Kind)
	case own != "" && given != "" && given != own:
		return "", fsm.Terminal("SecretElsewhere", "%s is in namespace %s, and %s in %s, which uses Secrets of its own namespace only: give it a copy there",
			what, given, c.owner.GetName(), own)
	}
	return cmp.Or(own, given), nil
}

// readSecret is what a Secret holds, read once in a call.
func (c *call) readSecret(ctx context.Context, at types.NamespacedName, ref *fsm.SecretRef) (map[string]string, error) {
	if data, known := c.secrets.data[at]; known {
		return data, nil
	}
	obj := object("v1", "Secret", at.Namespace, at.Name)
	found := false
	var err error
	if at.Namespace != "" { // nothing was kept for an object without a namespace
		found, err = c.find(ctx, obj, "get")
	}
	switch {
	case err != nil:
		return nil, err
	case !found || ref.Output != "" && !c.ofState(obj):
		return nil, missing(ref, "there is no Secret %s", at)
	}
	data := map[string]string{}
	encoded, _, _ := unstructured.NestedStringMap(obj.Object, "data")
	for key, text := range encoded {
		value, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("key %s of %s is not base64", key, title(obj))
		}
		data[key] = string(value)
	}
	if c.secrets.data == nil {
		c.secrets.data = map[types.NamespacedName]map[string]string{}
	}
	c.secrets.data[at] = data
	return data, nil
}

// missing is the error about a value that is not there. It is one of class NotFound, so that it is tried again, and a machine
// may say where it leads.
func missing(ref *fsm.SecretRef, format string, args ...any) error {
	remedy := "create it"
	if ref.Output != "" {
		remedy = "a step with secretOutputs keeps it once its request is answered"
	}
	return &apierrs.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("%s cannot be read: %s: %s", ref, fmt.Sprintf(format, args...), remedy)}}
}

// add notes a value, and how JSON, a header and an object have it.
func (r *revealed) add(value string) {
	if len(value) < shortestHidden {
		return
	}
	quoted, _ := json.Marshal(value) // a text is always JSON
	for _, form := range []string{value, strings.TrimSpace(value), string(quoted[1 : len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(value))} {
		if len(form) >= shortestHidden && !slices.Contains(r.forms, form) {
			r.forms = append(r.forms, form)
		}
	}
	// A longer value may have a shorter one in it.
	slices.SortStableFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
}

func (r *revealed) hide(text string) string {
	for _, form := range r.forms {
		text = strings.ReplaceAll(text, form, "(secret)")
	}
	return text
}

// hide is an outcome without what the call has read of Secrets.
func (c *call) hide(out outputs, err error) (outputs, error) {
	for name, value := range out {
		if text, isText := value.(string); isText {
			out[name] = c.secrets.hide(text)
		}
	}
	if err == nil || c.secrets.hide(err.Error()) == err.Error() {
		return out, err
	}
	var terminal *fsm.TerminalError
	hidden := &hiddenError{c.secrets.hide(err.Error()), err}
	if errors.As(err, &terminal) {
		return out, &fsm.TerminalError{Reason: terminal.Reason, Err: hidden}
	}
	return out, hidden
}

// hiddenError has the class of an error, and another text.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }

// outputsVerbs are what keeping secret outputs needs.
var outputsVerbs = []string{"get", "create", "patch"}

// toSecrets are the Secrets that a call reads, and the one that it keeps outputs in, whose name belongs to the state.
func toSecrets(with fsm.Params) (all []rbac.Access) {
	secret := func(name, namespace string, verbs ...string) rbac.Access {
		return rbac.Access{APIVersion: "v1", Kind: "Secret", Name: known(name), Namespace: known(namespace), Verbs: verbs}
	}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		for _, ref := range fsm.SecretRefs(with[name]) {
			all = append(all, secret(ref.Name, ref.Namespace, "get"))
		}
	}
	if with["secretOutputs"] != nil {
		all = append(all, secret("", with.String("namespace", ""), outputsVerbs...))
	}
	return all
}

// toApplied is what an apply writes, and what it reads for a manifest of kind Secret.
func toApplied(with fsm.Params) []rbac.Access {
	all := toManifest(applyVerbs...)(with)
	if manifest := with.Object("manifest"); isSecretManifest(manifest) {
		all = append(all, toSecrets(fsm.Params{"stringData": manifest["stringData"]})...)
	}
	return all
}
