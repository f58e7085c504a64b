package runnertest_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
)

// keepNote is the action that is tried: it keeps a note about the object.
func keepNote(c client.Client) runner.Action[*migrationv1.DatastoreMigration] {
	return runner.Action[*migrationv1.DatastoreMigration]{
		ActionSpec: fsm.ActionSpec{Params: map[string]fsm.Param{"text": {Type: fsm.TypeString, Required: true}}},
		Do: func(ctx context.Context, s *runner.Scope[*migrationv1.DatastoreMigration]) (map[string]any, error) {
			note := &corev1.ConfigMap{
				// A name that comes from the object is the same after a crash.
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "note-" + s.Object.Name},
				Data:       map[string]string{"text": s.With.String("text", "")},
			}
			// Without this, the kit reports a crash right after the create.
			if err := c.Create(ctx, note); !apierrs.IsAlreadyExists(err) {
				return nil, err
			}
			return nil, nil
		},
	}
}

// A test of an action. On a real API server, take the client of envtest or of any
// cluster in place of the fake one.
func ExampleIdempotent() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, migrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	runs := 0
	test := func(t testing.TB) {
		covered := runnertest.Idempotent(t, runnertest.Case[*migrationv1.DatastoreMigration]{
			Client: fake.NewClientBuilder().WithScheme(scheme).Build(),
			Setup: func(ctx context.Context, c client.Client) (*migrationv1.DatastoreMigration, error) {
				runs++
				obj := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("move-%d", runs)}}
				return obj, c.Create(ctx, obj)
			},
			Action: keepNote,
			With:   func(*migrationv1.DatastoreMigration) fsm.Params { return fsm.Params{"text": "hello"} },
		})
		fmt.Println(covered.Writes, "in", runs, "worlds")
	}
	test(&heard{ctx: context.Background()}) // in a test of your own: the *testing.T
	// Output:
	// [create ConfigMap] in 3 worlds
}
