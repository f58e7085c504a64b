package mcpserver

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// lists are all lists of the kinds that are applied, with whether they are atomic in the API's schema: an atomic one belongs to
// its manager as a whole, so that it matters who else writes it.
func lists(t *testing.T) map[string]bool {
	t.Helper()
	convert := applyconfigurations.NewTypeConverter(scheme.Scheme)
	found := map[string]bool{}
	for _, obj := range []runtime.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &corev1.Service{}, &corev1.ConfigMap{},
		&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		gvk, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			t.Fatal(err)
		}
		value := reflect.ValueOf(obj).Elem()
		filled(value, 0)
		obj.GetObjectKind().SetGroupVersionKind(gvk[0])
		atomic(t, convert, gvk[0].Kind, obj, found)
	}
	return found
}

// filled gives each list of v one item, each map one entry, and each pointer a value.
func filled(v reflect.Value, depth int) { //nolint:gocyclo // one switch over kinds
	if depth > 14 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Name != "Status" && field.Name != "ManagedFields" { // which nobody applies
				filled(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		filled(key, depth+1)
		filled(value, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("1")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(1)
	}
}

// atomic notes the lists of obj. Of an atomic one, the set of fields has the list itself, and of another its items.
func atomic(t *testing.T, convert managedfields.TypeConverter, kind string, obj runtime.Object, found map[string]bool) {
	t.Helper()
	typed, err := convert.ObjectToTyped(obj)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	set, err := typed.ToFieldSet()
	if err != nil {
		t.Fatal(err)
	}
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	set.Iterate(func(path fieldpath.Path) {
		value, names := any(all), []string{kind}
		for _, step := range path {
			if step.FieldName == nil {
				found[strings.Join(names, ".")] = false
				value = value.([]any)[0]
				continue
			}
			fields, is := value.(map[string]any)
			if !is {
				return
			}
			names, value = append(names, *step.FieldName), fields[*step.FieldName]
		}
		if _, is := value.([]any); is {
			found[strings.Join(names, ".")] = true
		}
	})
}

// The page has each atomic list that may be applied, and no other. One that Kubernetes adds, or makes atomic, is to be thought of.
func TestListsArePartOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/lists.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for path, isAtomic := range lists(t) {
		if rest, inPod := strings.CutPrefix(path, "StatefulSet.spec.template."); inPod {
			path = "pod." + rest
		}
		if isAtomic && !strings.HasPrefix(path, "Deployment.spec.template.") && !strings.HasPrefix(path, "StatefulSet.spec.volumeClaimTemplates.") {
			want = append(want, path)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^|]*)` \\|").FindAllStringSubmatch(string(page), -1) {
		got = append(got, strings.Split(row[1], "`, `")...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("atomic lists (-the API's schema +docs/reference/lists.md):\n%s", diff)
	}
}
