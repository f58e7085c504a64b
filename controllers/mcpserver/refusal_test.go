package mcpserver

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func TestRefusal(t *testing.T) {
	sets := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	webhook := func(code int32) error {
		return &apierrs.StatusError{ErrStatus: metav1.Status{Code: code, Message: "no"}}
	}
	for name, c := range map[string]struct {
		why  string
		err  error
		want bool
	}{
		"none":       {"it is taken", nil, false},
		"validation": {"no wait helps", apierrs.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "fetch", nil), true},
		"forbidden":  {"a quota or a webhook", fmt.Errorf("apply it: %w", apierrs.NewForbidden(sets, "fetch", errors.New("no"))), true},
		"no right":   {"the proxy may have it", apierrs.NewForbidden(sets, "fetch", errors.New(`User "system:serviceaccount:a:b" cannot patch resource "statefulsets" in API group "apps" in the namespace "c"`)), false},
		"webhook":    {"one without a code of its own", webhook(400), true},
		"conflict":   {"the proxy reads again", apierrs.NewConflict(sets, "fetch", errors.New("changed")), false},
		"too many":   {"the API server is busy", apierrs.NewTooManyRequests("later", 1), false},
		"down":       {"a webhook that does not answer is no verdict", apierrs.NewInternalError(errors.New("failed calling webhook")), false},
		"no dry run": {"the webhook was not asked", apierrs.NewBadRequest(`admission webhook "a" does not support dry run`), false},
		"no answer":  {"there is no verdict", errors.New("connection refused"), false},
	} {
		if got := refusal(c.err); got != c.want {
			t.Errorf("%s: %v, want %v: %s", name, got, c.want, c.why)
		}
	}
}

// A request more at each look would be too many, and none would never tell.
func TestWhenTheBackendIsTried(t *testing.T) {
	stamped := func(generation string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{v1beta1.AnnotationGeneration: generation}}
	}
	live := func(generation string, ready int32) *appsv1.Deployment {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{ReadyReplicas: ready}}
		d.Spec.Template.ObjectMeta = stamped(generation)
		return d
	}
	set := func(generation string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: stamped(generation)}
	}
	for name, c := range map[string]struct {
		live *appsv1.Deployment
		set  *appsv1.StatefulSet
		want bool
	}{
		"a new server":             {nil, nil, true},
		"its proxy starts":         {live("2", 0), nil, false},
		"its proxy is up":          {live("2", 1), nil, true},
		"at rest":                  {live("2", 1), set("2"), false},
		"a newer proxy was here":   {live("1", 1), set("3"), false},
		"a change":                 {live("1", 1), set("1"), true},
		"the change is on its way": {live("2", 0), set("1"), false},
	} {
		if got := mayBeRefused(c.live, c.set, 2); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
