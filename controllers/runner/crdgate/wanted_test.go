package crdgate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func crd(uid types.UID, conditions ...apiextensionsv1.CustomResourceDefinitionCondition) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Status:     apiextensionsv1.CustomResourceDefinitionStatus{Conditions: conditions},
	}
}

func TestWanted(t *testing.T) {
	condition := func(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) apiextensionsv1.CustomResourceDefinitionCondition {
		return apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status}
	}
	established := condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
	terminating := crd("a", condition(apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue), established)
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}

	serving := func(versions ...apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
		c := crd("a", established)
		c.Name, c.Spec.Group, c.Spec.Names.Plural, c.Spec.Names.Kind, c.Spec.Versions = "doors.example.org", "example.org", "doors", "Door", versions
		return c
	}
	missing := func(served string) target {
		return target{"a", Missing{CRD: "doors.example.org", Version: "v1", Kind: "Door", Resource: schema.GroupVersionResource{Group: "example.org", Version: served, Resource: "doors"}}}
	}
	beta := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1beta1", Served: true}

	absent := target{missing: Missing{Absent: true}}
	v1 := func() string { return "v1" }
	cases := map[string]struct {
		why     string
		crd     *apiextensionsv1.CustomResourceDefinition
		version func() string
		want    target
	}{
		"absent":          {why: "nothing to watch", want: absent},
		"just created":    {why: "it is not served yet", crd: crd("a"), want: absent},
		"established":     {why: "it is served", crd: crd("a", established), want: target{uid: "a"}},
		"other condition": {why: "accepted names are not yet served", crd: crd("a", condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue)), want: absent},
		"not established": {why: "its names are taken by another CRD", crd: crd("a", condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse)), want: absent},
		"terminating":     {why: "its objects wait for a finalizer that only the controller removes", crd: terminating, want: target{uid: "a"}},
		"its version":     {why: "another one beside it changes nothing", crd: serving(beta, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}), version: v1, want: target{uid: "a"}},
		"another version": {why: "Calico 3.32.0 has v1beta1 only", crd: serving(beta), version: v1, want: missing("v1beta1")},
		"not served":      {why: "a version may be stored, and not be served", crd: serving(apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}), version: v1, want: missing("")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gate := &Gate{Version: tc.version}
			if got := gate.wanted(tc.crd); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.why, got, tc.want)
			}
		})
	}
}

func TestPauseAfter(t *testing.T) {
	var got []time.Duration
	for _, n := range []int{1, 2, 3, 6, 7, 8, 1000000} {
		got = append(got, pauseAfter(n))
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 32 * time.Second, time.Minute, time.Minute, time.Minute,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pauses (-want +got):\n%s", d)
	}
}
