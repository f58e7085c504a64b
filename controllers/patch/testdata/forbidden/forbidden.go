// Package forbidden is what the linter must refuse: `make verify` compares its
// findings with the lines that are marked. Nothing imports it.
package forbidden

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	write "github.com/phasegate/phasegate/controllers/patch"
)

type server = v1beta1.MCPServer

// steps embeds its client, as controllers like to do.
type steps struct{ client.Client }

// writer is a client under another name.
type writer interface {
	Update(context.Context, client.Object, ...client.UpdateOption) error
}

func updates(ctx context.Context, c client.Client, s steps, w writer, obj *server, none func() error) {
	_ = c.Update(ctx, obj)                                      // forbidden
	_ = s.Update(ctx, obj)                                      // forbidden
	_ = s.Client.Update(ctx, obj)                               // forbidden
	_ = w.Update(ctx, obj)                                      // forbidden
	later := c.Update                                           // forbidden
	_, _ = controllerutil.CreateOrUpdate(ctx, c, obj, none)     // forbidden
	_, _ = controllerutil.CreateOrPatch(ctx, c, obj, none)      // forbidden
	_ = c.DeleteAllOf(ctx, obj)                                 // forbidden
	_ = s.DeleteAllOf(ctx, obj)                                 // forbidden
	_ = c.Patch(ctx, obj, client.MergeFrom(obj.DeepCopy()))     // the way to go
	_ = write.MutateAndPatchSpec(ctx, c, obj, func(*server) {}) // the way to go
	_ = c.Delete(ctx, obj, client.Preconditions{UID: &obj.UID}) // the way to go
	_ = later(ctx, obj)
}

func statuses(ctx context.Context, c client.Client, s steps, d dynamic.ResourceInterface, obj *server) {
	diff := client.MergeFrom(obj.DeepCopy())
	_ = c.Status().Update(ctx, obj)                   // forbidden
	_ = c.Status().Patch(ctx, obj, diff)              // forbidden
	_ = s.Status().Patch(ctx, obj, diff)              // forbidden
	_ = c.SubResource("status").Patch(ctx, obj, diff) // forbidden
	status := s.Status()
	_ = status.Patch(ctx, obj, diff)                             // forbidden
	_ = write.MutateAndSwapStatus(ctx, c, obj, func(*server) {}) // forbidden
	_, _ = d.UpdateStatus(ctx, nil, metav1.UpdateOptions{})      // forbidden
}
