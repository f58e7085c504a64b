package datastoremigration

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/sidedoor"
	"github.com/phasegate/phasegate/resources"
)

// A door that cannot be closed, now or ever, keeps no other one open: what is on its way to
// the others is not taken back.
func TestADoorThatSticksKeepsNoOtherOpen(t *testing.T) {
	const me, sticks = "me", "tiers.projectcalico.org"
	var crds []client.Object
	for _, kind := range resources.Default().All() {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.V3CRDName(), Annotations: map[string]string{migrationv1.AnnotationSideDoor: me}}}
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: resources.V3Version, Served: true, Storage: true}, {Name: migrationv1.SideDoorVersion, Served: true}}
		crds = append(crds, crd)
	}
	refused := errors.New("refused")
	c := newFake().WithObjects(crds...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == sticks {
				return refused
			}
			select { // an answer takes its time
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	s := newEffects(c, Settings{Registry: resources.Default()})
	synctest.Test(t, func(t *testing.T) {
		if _, err := s.door.closeSideDoor(t.Context(), &scope{Object: &migration{ObjectMeta: metav1.ObjectMeta{UID: me}}}); !errors.Is(err, refused) {
			t.Errorf("it says %v, want the one that sticks", err)
		}
	})
	var open []string
	for _, obj := range crds {
		crd, err := s.crd(t.Context(), obj.GetName())
		must(t, err)
		if sidedoor.Has(crd) {
			open = append(open, crd.Name)
		}
	}
	if diff := cmp.Diff([]string{sticks}, open); diff != "" {
		t.Errorf("doors that are open (-want +got):\n%s", diff)
	}
}
