// Package equality reads what v1 and v3 hold and compares them, value by value. It
// shares nothing with the product's Verify: whatever v1 says must be found in v3;
// what v3 says besides is listed, so that a reader can see that it is nothing but
// defaults.
package equality

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
)

// shownValue is the length to which a value is cut.
const shownValue = 60

// notePrefix is that of the migration's own notes.
const notePrefix = "migration.projectcalico.org/"

// tierLabel is set by Calico's admission policies on objects that lack it.
const tierLabel = "projectcalico.org/tier"

// Key names an object in v3 terms.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string {
	if k.Namespace != "" {
		return k.Kind + " " + k.Namespace + "/" + k.Name
	}
	return k.Kind + " " + k.Name
}

// Side is everything that one side holds, in v3 terms.
type Side map[Key]*unstructured.Unstructured

// Count is how many objects of a kind there are.
func (s Side) Count(kind string) int {
	n := 0
	for k := range s {
		if k.Kind == kind {
			n++
		}
	}
	return n
}

// Comparison is what was found, every list sorted.
type Comparison struct {
	Missing, Extra []string
	Different      []string
	// NoStatus are the objects whose status is not in v3. It is no difference for
	// everybody: whoever reports the status does so again.
	NoStatus []string
	// Added counts the fields that only v3 has, by path.
	Added map[string]int
}

// Equal tells that nothing is missing, too much or different.
func (c Comparison) Equal() bool { return len(c.Missing)+len(c.Extra)+len(c.Different) == 0 }

// Compare looks for everything of v1 in v3.
func Compare(v1, v3 Side) Comparison {
	c := Comparison{Added: map[string]int{}}
	for k, want := range v1 {
		have, found := v3[k]
		if !found {
			c.Missing = append(c.Missing, k.String())
			continue
		}
		wanted, had := essence(want), essence(have)
		if wanted["status"] != nil && had["status"] == nil {
			delete(wanted, "status")
			c.NoStatus = append(c.NoStatus, k.String())
		}
		d := differ{added: c.Added}
		d.values("", wanted, had)
		for _, field := range d.found {
			c.Different = append(c.Different, k.String()+": "+field)
		}
	}
	for k := range v3 {
		if _, found := v1[k]; !found {
			c.Extra = append(c.Extra, k.String())
		}
	}
	for _, list := range [][]string{c.Missing, c.Extra, c.Different, c.NoStatus} {
		slices.Sort(list)
	}
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
		if !strings.HasPrefix(name, notePrefix) {
			annotations[name] = value
		}
	}
	for _, name := range obj.GetFinalizers() {
		finalizers[name] = true
	}
	for _, ref := range obj.GetOwnerReferences() {
		// A Calico owner has one group on each Side.
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
		return ok && x.Cmp(y) == 0
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

// number is exact: a float64 would hide how large integers differ.
func number(v any) (*big.Rat, bool) {
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v), true
	case float64:
		exact := new(big.Rat).SetFloat64(v)
		return exact, exact != nil
	}
	return nil, false
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
		text = []byte(fmt.Sprint(v))
	}
	if runes := []rune(string(text)); len(runes) > shownValue {
		return string(runes[:shownValue-1]) + "…"
	}
	return string(text)
}
