package v1alpha1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

var at = metav1.NewMicroTime(time.Date(2026, 11, 21, 2, 16, 48, 838849000, time.UTC).Local())

func TestTransitionIsOneLine(t *testing.T) {
	took := metav1.Duration{Duration: 1659 * time.Millisecond}
	cases := map[string]struct {
		why  string
		t    v1alpha1.Transition
		want string
	}{
		"First": {
			why:  "an object comes from no phase, and no time has passed",
			t:    v1alpha1.Transition{To: "Pending", At: at, Reason: "Created"},
			want: "2026-11-21T02:16:48.838849Z → Pending: Created",
		},
		"Edge": {
			why:  "the usual one",
			t:    v1alpha1.Transition{From: "Pending", To: "Migrating", At: at, Took: took, Reason: "ReadyToCutOver"},
			want: "2026-11-21T02:16:48.838849Z Pending → Migrating after 1.659s: ReadyToCutOver",
		},
		"NoTime": {
			why:  "a phase may last for less than a millisecond",
			t:    v1alpha1.Transition{From: "A", To: "B", At: at, Reason: "Quick"},
			want: "2026-11-21T02:16:48.838849Z A → B after 0s: Quick",
		},
		"Message": {
			why:  "messages hold colons, arrows and line breaks of their own",
			t:    v1alpha1.Transition{From: "A", To: "B", At: at, Took: took, Reason: "Error", Message: "get x: no → y: \nz after 3s: w"},
			want: "2026-11-21T02:16:48.838849Z A → B after 1.659s: Error: get x: no → y: \nz after 3s: w",
		},
		"ReasonWithColon": {
			why:  "Kubernetes lets a reason have colons inside",
			t:    v1alpha1.Transition{From: "A", To: "B", At: at, Took: took, Reason: "Code:7", Message: "m"},
			want: "2026-11-21T02:16:48.838849Z A → B after 1.659s: Code:7: m",
		},
		"MessageOnly": {
			why:  "the message must not be taken for the reason",
			t:    v1alpha1.Transition{From: "A", To: "B", At: at, Took: took, Message: "why not"},
			want: "2026-11-21T02:16:48.838849Z A → B after 1.659s: : why not",
		},
		"Bare": {
			why:  "neither reason nor message",
			t:    v1alpha1.Transition{From: "A", To: "B", At: at, Took: took},
			want: "2026-11-21T02:16:48.838849Z A → B after 1.659s",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line, back := thereAndBack(t, tc.t)
			if diff := cmp.Diff(tc.want, tc.t.String()) + cmp.Diff(any(tc.want), line); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.t, back); diff != "" {
				t.Errorf("%s: read back (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestTransitionRefuses(t *testing.T) {
	cases := map[string]struct{ why, text string }{
		"Object":   {why: "not a line", text: `{"to":"A"}`},
		"NoArrow":  {why: "no edge", text: `"2026-11-21T02:16:48.838849Z Pending"`},
		"Time":     {why: "the time is none", text: `"today A → B after 1s: R"`},
		"Duration": {why: "the duration is none", text: `"2026-11-21T02:16:48.838849Z A → B after ages: R"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got v1alpha1.Transition
			if err := json.Unmarshal([]byte(tc.text), &got); err == nil {
				t.Errorf("%s, yet it was read as %+v", tc.why, got)
			}
		})
	}
}
