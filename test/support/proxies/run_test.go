package proxies

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A server ends each watch in time, and a client ends it together with its context:
// neither is an error. (Whoever looked at both took the second for the first, now and
// then.)
func TestAWatchThatEndsIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	watches := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			if watches++; watches == 2 {
				cancel()
			}
			ended := watch.NewFake()
			ended.Stop()
			return ended, nil
		},
	}).Build()
	if err := Run(ctx, c, 1); err != nil || watches != 2 {
		t.Errorf("Run = %v after %d watches, want none, and the second watch once the first has ended", err, watches)
	}
}
