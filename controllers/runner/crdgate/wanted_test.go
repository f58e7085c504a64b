package crdgate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	cases := map[string]struct {
		why  string
		crd  *apiextensionsv1.CustomResourceDefinition
		want types.UID
	}{
		"absent":          {"nothing to watch", nil, ""},
		"just created":    {"it is not served yet", crd("a"), ""},
		"established":     {"it is served", crd("a", established), "a"},
		"other condition": {"accepted names are not yet served", crd("a", condition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue)), ""},
		"not established": {"its names are taken by another CRD", crd("a", condition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse)), ""},
		"terminating":     {"its objects wait for a finalizer that only the controller removes", terminating, "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := wanted(tc.crd); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.why, got, tc.want)
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
