package mcpserver

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// atomicLists are the paths of those in a type of the API's schema. An atomic list belongs to its manager as a whole, so that it
// matters who else writes it; what is in an atomic map has no owner of its own.
func atomicLists(types *schema.Schema, of schema.TypeRef, at string) (paths []string) {
	is, _ := types.Resolve(of)
	switch {
	case is.Scalar != nil:
	case is.List != nil && is.List.ElementRelationship == schema.Atomic:
		return []string{at}
	case is.List != nil:
		return atomicLists(types, is.List.ElementType, at)
	case is.Map != nil && is.Map.ElementRelationship != schema.Atomic:
		for _, field := range is.Map.Fields {
			if field.Name != "status" && field.Name != "managedFields" { // which nobody applies
				paths = append(paths, atomicLists(types, field.Type, at+"."+field.Name)...)
			}
		}
	}
	return paths
}

// The page has each atomic list that may be applied, and no other. One that Kubernetes adds, or makes atomic, is to be thought of.
func TestListsArePartOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/lists.md")
	if err != nil {
		t.Fatal(err)
	}
	convert := applyconfigurations.NewTypeConverter(scheme.Scheme)
	var want, got []string
	for _, obj := range []runtime.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &corev1.Service{}, &corev1.ConfigMap{},
		&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		gvk, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk[0])
		typed, err := convert.ObjectToTyped(obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range atomicLists(typed.Schema(), typed.TypeRef(), gvk[0].Kind) {
			want = append(want, regexp.MustCompile(`^(Deployment|StatefulSet)\.spec\.template\.`).ReplaceAllString(path, "pod."))
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
