package copier

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// A metric is made of it, which must tell how often the API server was asked again.
func TestRetriesAreTold(t *testing.T) {
	lock := resources.Default().Lock()
	busy := apierrs.NewTooManyRequests("busy", 0)
	cases := map[string]struct {
		why     string
		answers []error
		want    []string
	}{
		"at once":      {why: "the first request is no retry", answers: []error{nil}},
		"second":       {why: "one more request", answers: []error{busy, nil}, want: []string{"get ClusterInformation"}},
		"never":        {why: "the last failure is not followed by a request", answers: []error{busy, busy, busy}, want: []string{"get ClusterInformation", "get ClusterInformation"}},
		"not possible": {why: "an answer that another request would not change", answers: []error{apierrs.NewForbidden(lock.V3GVR().GroupResource(), "x", nil)}},
		"not allowed": {why: "a check of many kinds would take minutes to say which it may not read", answers: []error{apierrs.NewForbidden(lock.V3GVR().GroupResource(), "x",
			errors.New(`User "u" cannot get resource "clusterinformations" in API group "projectcalico.org" at the cluster scope`))}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			answers := c.answers
			live := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					answer := answers[0]
					answers = answers[1:]
					return answer
				},
			})
			copier := New(resources.Default(), live, "", WithBackoff(wait.Backoff{Duration: time.Microsecond, Factor: 1, Steps: 3}),
				WithRetried(func(kind, operation string) { got = append(got, operation+" "+kind) }))
			_, err := copier.api.get(t.Context(), lock.V3GVK(), client.ObjectKey{Name: "x"})
			if last := c.answers[len(c.answers)-1]; !errors.Is(err, last) {
				t.Errorf("error %v, want %v", err, last)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(answers) > 0 {
				t.Errorf("%s: retries (-want +got), %d answers not asked for:\n%s", c.why, len(answers), diff)
			}
		})
	}
}
