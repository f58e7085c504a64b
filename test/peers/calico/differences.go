package calico

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Objects are what clients see, by kind, namespace and name.
type Objects map[string]*unstructured.Unstructured

// Key is the name of an object among Objects.
func Key(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")
}

// Difference is a field that clients see otherwise than before, as JSON; empty where it is not there. The path of an
// object that is there on one side only is empty.
type Difference struct{ Object, Path, Before, After string }

func (d Difference) String() string {
	return fmt.Sprintf("%s%s: %s → %s", d.Object, d.Path, short(d.Before), short(d.After))
}

const shown = 160

func short(text string) string {
	if text == "" {
		return "(absent)"
	}
	return text[:min(len(text), shown)]
}

// Differences compares all fields of all objects, in order. Entries of managedFields are told apart by who they are of,
// not by their place.
func Differences(before, after Objects) (found []Difference) {
	names := map[string]bool{}
	for _, side := range []Objects{before, after} {
		for name := range side {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := before[name], after[name]
		if was == nil || is == nil {
			found = append(found, Difference{Object: name, Before: presence(was), After: presence(is)})
			continue
		}
		found = append(found, differences(name, leaves(was), leaves(is))...)
	}
	return found
}

func presence(obj *unstructured.Unstructured) string {
	if obj == nil {
		return ""
	}
	return "(present)"
}

func differences(object string, was, is map[string]string) (found []Difference) {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if was[path] != is[path] {
			found = append(found, Difference{Object: object, Path: path, Before: was[path], After: is[path]})
		}
	}
	return found
}

func leaves(obj *unstructured.Unstructured) map[string]string {
	out, rest := map[string]string{}, obj.DeepCopy()
	for _, entry := range obj.GetManagedFields() {
		fields := ""
		if entry.FieldsV1 != nil {
			fields = entry.FieldsV1.GetRawString()
		}
		at := fmt.Sprintf(".metadata.managedFields[%s %s %s]", entry.Manager, entry.Operation, entry.Subresource)
		out[at+".apiVersion"], out[at+".fieldsV1"] = entry.APIVersion, fields
	}
	unstructured.RemoveNestedField(rest.Object, "metadata", "managedFields")
	flatten("", rest.Object, out)
	return out
}

func flatten(path string, value any, out map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			flatten(path+"."+name, item, out)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, item := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), item, out)
		}
		if len(v) > 0 {
			return
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = fmt.Append(nil, value)
	}
	out[path] = string(text)
}

// Explanation is a reason for which clients may see some fields otherwise.
type Explanation struct {
	// Objects and Path say which: all of both must match. Before and After, where they are given, too.
	Objects, Path, Before, After string
	// Why is for people.
	Why string
}

func (e Explanation) explains(d Difference) bool {
	for pattern, text := range map[*string]string{&e.Objects: d.Object, &e.Path: d.Path, &e.Before: d.Before, &e.After: d.After} {
		if *pattern != "" && !regexp.MustCompile("^(?:"+*pattern+")$").MatchString(text) {
			return false
		}
	}
	return true
}

// Report says what became of differences: how many there are of each sort, with the reason.
type Report struct {
	// Lines are for people, the most frequent sort first.
	Lines []string
	// Counts is how many differences there are of each sort, without the reason.
	Counts map[string]int
	// Unexplained are those that no explanation is for.
	Unexplained []Difference
	// Unused are explanations that nothing needed.
	Unused []string
}

// Explain sorts differences by the first explanation that is for them.
func Explain(found []Difference, explanations []Explanation) Report {
	r, counts, used := Report{Counts: map[string]int{}}, map[string]int{}, map[int]bool{}
	for _, d := range found {
		at := slices.IndexFunc(explanations, func(e Explanation) bool { return e.explains(d) })
		why := "UNEXPLAINED"
		if at < 0 {
			r.Unexplained = append(r.Unexplained, d)
		} else {
			used[at], why = true, explanations[at].Why
		}
		r.Counts[sort(d)]++
		counts[sort(d)+": "+why]++
	}
	lines := slices.Collect(maps.Keys(counts))
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	for _, line := range lines {
		r.Lines = append(r.Lines, fmt.Sprintf("%6d  %s", counts[line], line))
	}
	for i, e := range explanations {
		if !used[i] {
			r.Unused = append(r.Unused, e.Why)
		}
	}
	return r
}

var (
	index = regexp.MustCompile(`\[\d+\]`)
	// values differ in every object.
	values = regexp.MustCompile(`^\.metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields.*fieldsV1|ownerReferences\[\d+\]\.uid|annotations.*)$`)
)

// sort is the kind, the path without numbers, and how it changed where that is short.
func sort(d Difference) string {
	kind, _, _ := strings.Cut(d.Object, " ")
	text := kind + index.ReplaceAllString(d.Path, "[]")
	change := d.Before + " → " + d.After
	switch {
	case d.Before == "":
		text += " (new)"
	case d.After == "":
		text += " (gone)"
	case !values.MatchString(d.Path) && len(change) < 60:
		text += " " + change
	}
	return text
}
