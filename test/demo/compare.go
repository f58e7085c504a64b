package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// shownValue is the length to which a value is cut.
const shownValue = 60

// tierLabel is set by Calico's admission policies on objects that lack it.
const tierLabel = "projectcalico.org/tier"

// The comparison is the demo's own and shares nothing with the product's Verify:
// whatever v1 says must be found in v3, value by value; what v3 says besides is
// listed, so that a reader can see that it is nothing but defaults.

// key names an object in v3 terms.
type key struct{ kind, namespace, name string }

func (k key) String() string {
	if k.namespace != "" {
		return k.kind + " " + k.namespace + "/" + k.name
	}
	return k.kind + " " + k.name
}

// side is everything that one side holds, in v3 terms.
type side map[key]*unstructured.Unstructured

func (s side) count(kind string) int {
	n := 0
	for k := range s {
		if k.kind == kind {
			n++
		}
	}
	return n
}

// comparison is what was found, every list sorted.
type comparison struct {
	missing, extra []string
	different      []string
	// noStatus counts objects whose status is not in v3. It is no difference:
	// whoever reports the status does so again.
	noStatus int
	// added counts the fields that only v3 has, by path.
	added map[string]int
}

func (c comparison) equal() bool { return len(c.missing)+len(c.extra)+len(c.different) == 0 }

func compare(v1, v3 side) comparison {
	c := comparison{added: map[string]int{}}
	for k, want := range v1 {
		have, found := v3[k]
		if !found {
			c.missing = append(c.missing, k.String())
			continue
		}
		wanted, had := essence(want), essence(have)
		if wanted["status"] != nil && had["status"] == nil {
			delete(wanted, "status")
			c.noStatus++
		}
		d := differ{added: c.added}
		d.values("", wanted, had)
		for _, field := range d.found {
			c.different = append(c.different, k.String()+": "+field)
		}
	}
	for k := range v3 {
		if _, found := v1[k]; !found {
			c.extra = append(c.extra, k.String())
		}
	}
	slices.Sort(c.missing)
	slices.Sort(c.extra)
	slices.Sort(c.different)
	return c
}

// essence is what users put into an object: not uid, versions, times and the
// migration's own notes. Owners are by name here; their uids are checked apart.
func essence(obj *unstructured.Unstructured) map[string]any {
	out := maps.Clone(obj.Object)
	delete(out, "apiVersion")
	delete(out, "kind")
	labels, annotations, finalizers, owners := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	for name, value := range obj.GetLabels() {
		labels[name] = value
	}
	for name, value := range obj.GetAnnotations() {
		if name != resources.MigratedByAnnotation {
			annotations[name] = value
		}
	}
	for _, name := range obj.GetFinalizers() {
		finalizers[name] = true
	}
	for _, ref := range obj.GetOwnerReferences() {
		// A Calico owner has one group on each side.
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		if group == resources.V1Group {
			group = resources.V3Group
		}
		owners[fmt.Sprintf("%s %s of %s", ref.Kind, ref.Name, group)] = true
	}
	out["metadata"] = map[string]any{"labels": labels, "annotations": annotations, "finalizers": finalizers, "owners": owners}
	return out
}

type differ struct {
	found []string
	added map[string]int
}

func (d *differ) values(path string, want, have any) {
	switch w := want.(type) {
	case map[string]any:
		if h, ok := have.(map[string]any); ok {
			d.fields(path, w, h)
			return
		}
	case []any:
		if h, ok := have.([]any); ok && len(h) == len(w) {
			for i := range w {
				d.values(fmt.Sprintf("%s[%d]", path, i), w[i], h[i])
			}
			return
		}
	}
	if !sameScalar(want, have) {
		d.found = append(d.found, fmt.Sprintf("%s is %s in v1 and %s in v3", path, short(want), short(have)))
	}
}

func (d *differ) fields(path string, want, have map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, found := have[name]
		switch {
		case found:
			d.values(path+"."+name, want[name], value)
		case want[name] != nil: // null and absent mean the same
			d.found = append(d.found, fmt.Sprintf("%s is %s in v1 and missing in v3", path+"."+name, short(want[name])))
		}
	}
	for name, value := range have {
		if _, found := want[name]; found {
			continue
		}
		// v3 has defaults for specs; of metadata it adds the tier label alone.
		if strings.HasPrefix(path, ".metadata") && name != tierLabel {
			d.found = append(d.found, fmt.Sprintf("%s is missing in v1 and %s in v3", path+"."+name, short(value)))
			continue
		}
		d.added[withoutIndexes(path)+"."+name]++
	}
}

// sameScalar compares numbers by value and times as instants.
func sameScalar(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	if x, ok := instant(a); ok {
		y, ok := instant(b)
		return ok && x.Equal(y)
	}
	switch a.(type) {
	case map[string]any, []any:
		return false // values compares what has the same shape
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func instant(v any) (time.Time, bool) {
	s, ok := v.(string)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}

func withoutIndexes(path string) string {
	var b strings.Builder
	inside := false
	for _, r := range path {
		inside = inside && r != ']'
		if !inside {
			b.WriteRune(r)
		}
		inside = inside || r == '['
	}
	return b.String()
}

// short shows a value as JSON, so that "false" is not mistaken for false.
func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return cut(fmt.Sprint(v), shownValue)
	}
	return cut(string(text), shownValue)
}
