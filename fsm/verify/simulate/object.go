package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// create fills in what the API server would.
func (w *world) create(object map[string]any) error {
	content, err := plain(object)
	if err != nil {
		return fmt.Errorf("object: %w", err)
	}
	kind := w.Machine.For()
	for key, want := range map[string]string{"apiVersion": kind.APIVersion, "kind": kind.Kind} {
		if got, set := content[key]; set && got != want {
			return fmt.Errorf("object.%s is %v, but machine %s is for %s", key, got, w.Machine.Name(), want)
		}
		content[key] = want
	}
	status, ok := content["status"].(map[string]any)
	if !ok && content["status"] != nil {
		return errors.New("object.status must be a mapping")
	}
	delete(content, "status")
	if err := w.resume(status); err != nil {
		return err
	}
	meta, ok := content["metadata"].(map[string]any)
	if !ok && content["metadata"] != nil {
		return errors.New("object.metadata must be a mapping")
	}
	if w.Finalizers, err = texts(meta["finalizers"]); err != nil {
		return fmt.Errorf("object.metadata.finalizers: %w", err)
	}
	filled := map[string]any{"name": "example", "uid": "00000000-0000-0000-0000-000000000001",
		"creationTimestamp": Epoch.Format("2006-01-02T15:04:05Z")}
	maps.Copy(filled, meta)
	content["metadata"] = filled
	w.content = content
	return nil
}

// resume takes the run up where a status says it is.
func (w *world) resume(status map[string]any) error {
	stored, ok := status["machine"]
	if !ok {
		return nil
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("object.status.machine: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w.Stored); err != nil {
		return fmt.Errorf("object.status.machine: %w", err)
	}
	if w.Stored.Revision == "" {
		w.Stored.Revision = w.Machine.Revision()
	}
	w.ShownMachine = *w.Stored.DeepCopy()
	return nil
}

// plain is a deep copy with the types that the API machinery decodes.
func plain(v map[string]any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	if out == nil { // null
		out = map[string]any{}
	}
	return out, nil
}

func texts(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok && v != nil {
		return nil, errors.New("must be a list")
	}
	out := make([]string, len(list))
	for i, item := range list {
		if out[i], ok = item.(string); !ok {
			return nil, fmt.Errorf("[%d] must be a text", i)
		}
	}
	return out, nil
}

// Self is the object as the machine sees it; changing it changes nothing.
func (w *world) Self() map[string]any {
	if w.gone {
		return map[string]any{}
	}
	self := unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.content)}
	self.SetGeneration(w.generation)
	self.SetResourceVersion(fmt.Sprint(w.version))
	self.SetFinalizers(nil)
	if len(w.Finalizers) > 0 {
		self.SetFinalizers(w.Finalizers)
	}
	if w.deleting {
		self.SetDeletionTimestamp(new(metav1.NewTime(w.now)))
	}
	self.Object["status"] = w.status()
	if fields := w.Machine.Bindings().Fields; len(fields) > 0 {
		maps.DeleteFunc(self.Object, func(name string, _ any) bool { return !slices.Contains(fields, name) })
	}
	return self.Object
}

func (w *world) status() map[string]any {
	var shown []metav1.Condition
	for _, c := range w.Shown.Conditions {
		if c.Type == fsm.ConditionReady || c.Status == metav1.ConditionTrue {
			shown = append(shown, c)
		}
	}
	all := map[string]any{"phase": w.Shown.Phase, "message": w.Shown.Message,
		"observedGeneration": w.observed, "conditions": shown}
	maps.Copy(all, w.Own)
	maps.DeleteFunc(all, func(_ string, v any) bool { return reflect.ValueOf(v).IsZero() }) // as a manager's type leaves it out
	maps.Copy(all, w.Fields)
	all["machine"] = w.ShownMachine
	status, err := plain(all)
	if err != nil {
		w.defect("the status cannot be read back: %v", err)
	}
	return status
}

// Set writes a field of the object, such as spec.type; nil is null. The error names a
// field that nobody may write.
func (w *world) Set(path string, value any) error {
	keys := strings.Split(path, ".")
	if err := writable(keys); err != nil {
		return err
	}
	wrapped, err := plain(map[string]any{"value": value})
	if err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	m := w.content
	for _, key := range keys[:len(keys)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = wrapped["value"]
	if keys[0] != "metadata" {
		w.generation++
	}
	w.touch()
	return nil
}

const maxPath = 16

func writable(keys []string) error {
	path := strings.Join(keys, ".")
	switch {
	case slices.Contains(keys, "") || len(keys) > maxPath:
		return fmt.Errorf("%q is no path of a field: write spec.type", path)
	case keys[0] == "metadata" && (len(keys) < 2 || keys[1] != "labels" && keys[1] != "annotations"):
		return fmt.Errorf("%s is not for writing: of metadata, set labels and annotations", path)
	case slices.Contains([]string{"status", "apiVersion", "kind"}, keys[0]):
		return fmt.Errorf("%s is not for writing: the machine and the API server own it", path)
	}
	return nil
}

// Annotate writes annotations of the object.
func (w *world) Annotate(annotations map[string]string) {
	object := unstructured.Unstructured{Object: w.content}
	all := map[string]string{}
	maps.Copy(all, object.GetAnnotations())
	maps.Copy(all, annotations)
	object.SetAnnotations(all)
	w.touch()
}

// Delete is what kubectl delete does. A second time, it does nothing.
func (w *world) Delete() {
	if w.deleting {
		return
	}
	w.deleting = true
	w.generation++
	w.touch()
	w.leave()
}

func (w *world) touch() {
	w.version++
	w.dirty = true
}

func (w *world) leave() {
	if w.deleting && len(w.Finalizers) == 0 && !w.gone {
		w.gone = true
		w.tell("gone")
		w.checkInvariants()
	}
}

func (w *world) setFinalizer(do fsm.Verb) {
	name := w.finalizer()
	if slices.Contains(w.Finalizers, name) == (do == fsm.AddFinalizer) {
		w.defect("%s is asked for, but the finalizers are %v", do, w.Finalizers)
	}
	w.Finalizers = slices.DeleteFunc(slices.Clone(w.Finalizers), func(f string) bool { return f == name })
	if do == fsm.AddFinalizer {
		w.Finalizers = append(w.Finalizers, name)
	}
	w.touch()
	w.tell("%s", do)
	if w.leave(); w.gone && len(w.Stored.Held) > 0 {
		w.defect("the object is gone while %v are held", w.Stored.HeldNames())
	}
}

// record stamps the annotations that show which requests were acted on.
func (w *world) record() {
	if w.gone || !w.hasState() {
		return
	}
	object := unstructured.Unstructured{Object: w.content}
	have := object.GetAnnotations()
	want := w.Machine.Records(&w.Stored)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have[key] != want[key] {
			w.Annotate(map[string]string{key: want[key]})
			w.tell("annotate %s=%s", key, want[key])
		}
	}
}

// Ending is what must not depend on crashes.
type Ending struct {
	Gone bool
	// Phase and Path are the last phase, and those before it.
	Phase string
	Path  []string
	// Held is the ledger, InPlace what really was taken and not released.
	Held, InPlace, Released []string
	Requests                []v1alpha1.RequestStatus
}

// Ending of the run up to now.
func (w *world) Ending() Ending {
	e := Ending{Gone: w.gone, Phase: w.Stored.Phase, Held: w.Stored.HeldNames(), InPlace: w.InPlace(),
		Released: slices.Sorted(maps.Keys(w.released)), Requests: w.Stored.Requests}
	for _, h := range w.Stored.History {
		e.Path = append(e.Path, h.To)
	}
	return e
}

// against says in what an ending differs from one without a crash.
func (e Ending) against(calm Ending) (all []string) {
	differs := func(name, is, without string) {
		if is != without {
			all = append(all, fmt.Sprintf("%s %s, without the crash %s", name, is, without))
		}
	}
	requests := func(of []v1alpha1.RequestStatus) string {
		var tokens []string
		for _, q := range of {
			tokens = append(tokens, fmt.Sprintf("%s %q", q.Name, q.Token))
		}
		return list(tokens)
	}
	differs("gone", fmt.Sprint(e.Gone), fmt.Sprint(calm.Gone))
	differs("phase", cmp.Or(e.Phase, "none"), cmp.Or(calm.Phase, "none"))
	differs("path", list(e.Path), list(calm.Path))
	differs("held", list(e.Held), list(calm.Held))
	differs("in place", list(e.InPlace), list(calm.InPlace))
	differs("released", list(e.Released), list(calm.Released))
	differs("requests acted on", requests(e.Requests), requests(calm.Requests))
	return all
}
