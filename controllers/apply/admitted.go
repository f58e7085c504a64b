package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"

	kjson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Between what is sent and what is stored is admission: a webhook or a policy that rewrites images, say. Compared with what
// came back, such an object would differ for ever. So what admission changed is noted on the object, and Owned is what was
// sent. A field that a person changes is not the manager's any more, whatever the note says.

// AnnotationSent notes what admission changed of an object, as JSON; absent where it changed nothing.
const AnnotationSent = "phasegate.dev/sent-before-admission"

// maxNote is the longest note. All annotations of an object have 256 KiB together.
const maxNote = 128 << 10

// gone is what is there instead of a field that admission removed.
const gone = "gone"

// change is a field that admission changed.
type change struct {
	// Path leads to it: names of fields and numbers of items among those that the manager owns.
	Path []string `json:"path"`
	Sent any      `json:"sent"`
	// Instead is gone, the sum of a list or map that is there in another size, or empty for any value: the manager owns
	// a value as long as nobody else changes it, but of a list or map only items.
	Instead string `json:"instead,omitempty"`
}

// takeNote takes the note out of the fields that a manager owns. One that somebody else has written is not among them,
// and one that cannot be read is none.
func takeNote(fields map[string]any) (noted []change) {
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, found := annotations[AnnotationSent].(string)
	if !found {
		return nil
	}
	delete(annotations, AnnotationSent)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if err := kjson.Unmarshal([]byte(text), &noted); err != nil {
		return nil
	}
	return noted
}

// noteOf is empty for no changes, and for more than fit: then the object is applied at each look, which changes nothing.
func noteOf(changes []change) string {
	if len(changes) == 0 {
		return ""
	}
	text, err := json.Marshal(changes)
	if err != nil || len(text) > maxNote {
		return ""
	}
	return string(text)
}

// sentAgain are the same changes of what is sent now. What is not sent any more is left out.
func sentAgain(noted []change, body map[string]any) (again []change) {
	for _, c := range noted {
		if sent, found := at(body, c.Path); found {
			again = append(again, change{Path: c.Path, Sent: sent, Instead: c.Instead})
		}
	}
	return again
}

func at(value any, path []string) (any, bool) {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			inner, found := v[step]
			if !found {
				return nil, false
			}
			value = inner
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// admitted are the changes that admission made between sent and stored, where both are what one manager owns.
func admitted(sent, stored any, path ...string) (changes []change) {
	step := func(name string) []string { return append(slices.Clone(path), name) }
	switch sent := sent.(type) {
	case map[string]any:
		fields, is := stored.(map[string]any)
		if !is || hasMore(fields, sent) {
			return []change{{path, sent, sumOf(stored)}}
		}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			if inner, found := fields[name]; found {
				changes = append(changes, admitted(sent[name], inner, step(name)...)...)
			} else {
				changes = append(changes, change{step(name), sent[name], gone})
			}
		}
	case []any:
		items, is := stored.([]any)
		if !is || len(items) != len(sent) {
			return []change{{path, sent, sumOf(stored)}}
		}
		for i := range sent {
			changes = append(changes, admitted(sent[i], items[i], step(strconv.Itoa(i))...)...)
		}
	default:
		if !reflect.DeepEqual(sent, stored) {
			return []change{{Path: path, Sent: sent}}
		}
	}
	return changes
}

func hasMore(stored, sent map[string]any) bool {
	for name := range stored {
		if _, found := sent[name]; !found {
			return true
		}
	}
	return false
}

// beforeAdmission puts back what was sent, where value is still what admission made of it.
func (c change) beforeAdmission(value any, path []string) any {
	if len(path) == 0 {
		if c.Instead != "" && c.Instead != sumOf(value) {
			return value
		}
		return c.Sent
	}
	switch v := value.(type) {
	case map[string]any:
		inner, found := v[path[0]]
		switch {
		case found:
			v[path[0]] = c.beforeAdmission(inner, path[1:])
		case len(path) == 1 && c.Instead == gone:
			v[path[0]] = c.Sent
		}
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(v) {
			v[i] = c.beforeAdmission(v[i], path[1:])
		}
	}
	return value
}

func sumOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // not of JSON, so from no API server
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// content is obj as it is sent, without what says of which object and version it is.
func content(c client.Client, obj client.Object) (map[string]any, error) {
	body, err := bodyOf(c, obj)
	if err != nil {
		return nil, err
	}
	metadata, _ := body.Object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion"} {
		delete(metadata, field)
	}
	return body.Object, nil
}

// write sends want, and once more where admission made something else of it than is noted. A crash in between is a write
// more at the next look.
func write[T client.Object](ctx context.Context, a Applier, want T, noted []change) (now T, err error) {
	sent, err := content(a.Client, want)
	if err != nil {
		return now, err
	}
	note := noteOf(sentAgain(noted, sent))
	for range 2 {
		body := want.DeepCopyObject().(T)
		if note != "" {
			body.SetAnnotations(merged(want.GetAnnotations(), AnnotationSent, note))
		}
		if now, err = send(ctx, a, body); err != nil {
			return now, err
		}
		came, err := cameBack(a, now)
		if err != nil {
			return now, err
		}
		changed := noteOf(admitted(sent, came))
		if changed == note || now.GetResourceVersion() == "" { // which a dry run that creates has not
			break
		}
		note = changed
		want.SetUID(now.GetUID())
		want.SetResourceVersion(now.GetResourceVersion())
	}
	return now, nil
}

// cameBack is the content that the manager has in what is stored now.
func cameBack[T client.Object](a Applier, now T) (map[string]any, error) {
	fields, _, err := storedOf(now, a.Manager)
	if err != nil {
		return nil, err
	}
	stored, err := typedLike(now, fields)
	if err != nil {
		return nil, err
	}
	return content(a.Client, stored)
}

func merged(annotations map[string]string, key, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, annotations)
	all[key] = value
	return all
}
