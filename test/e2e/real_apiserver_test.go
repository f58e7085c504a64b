package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/setup"
)

// How Calico's API server differs from others. The stand-in does the same: its testLearnt.
func TestRealAPIServer(t *testing.T) {
	r := realCalico(t)
	r.assertTold(t, "profiles", "ipamblocks", "ipamhandles")
	t.Run("pages", func(t *testing.T) {
		var list struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		r.do(t, json.Unmarshal([]byte(r.kubectl(t, "get", "--raw", "/apis/projectcalico.org/v3/globalnetworksets?limit=2")), &list))
		if len(list.Items) != 10 || list.Metadata.Continue != "" {
			t.Errorf("%d objects in a page of 2, continued by %q: want all 10, and no more", len(list.Items), list.Metadata.Continue)
		}
	})
	t.Run("managers of fields", func(t *testing.T) {
		obj := r.get(t, v3, "GlobalNetworkSet", "blocklist-0")
		if entries := obj.GetManagedFields(); len(entries) != 1 || entries[0].Manager != gitOps || entries[0].APIVersion != v3 || obj.GetGeneration() != 0 {
			t.Errorf("generation %d, managedFields %+v: want those of its own clients, and no generation", obj.GetGeneration(), entries)
		}
	})
	r.manager(t, "--phases-dir", gated(t))
	r.start(t, setup.MigrationName, "drained")
	r.awaitGate(t, setup.MigrationName, "drained")
	t.Run("a refusal of v1", func(t *testing.T) {
		obj := r.get(t, v3, "GlobalNetworkSet", "blocklist-0")
		create := &unstructured.Unstructured{Object: map[string]any{"spec": obj.Object["spec"]}}
		create.SetGroupVersionKind(obj.GroupVersionKind())
		create.SetName("refused")
		// It runs admission policies itself, and so refuses by the fence of v3 what an abort would lose.
		if err := r.Client.Create(t.Context(), create); !apierrs.IsForbidden(err) || !strings.Contains(err.Error(), migrationv1.V3FenceName) {
			t.Errorf("create: answered with %v, want the refusal of %s", err, migrationv1.V3FenceName)
		}
		for what, err := range map[string]error{
			"update": r.Client.Update(t.Context(), labelled(obj)), "delete": r.Client.Delete(t.Context(), obj.DeepCopy()),
			"patch": r.Client.Patch(t.Context(), obj.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"at":"once"}}}`))),
		} {
			if err := refusedByTheServer(err); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	r.remove(t, setup.MigrationName)
}

func labelled(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	obj.SetLabels(map[string]string{"at": "once"})
	return obj
}

// refusedByTheServer is an error unless a write was refused as Calico's API server passes on a refusal of the fence: as an
// internal error with the whole message.
func refusedByTheServer(err error) error {
	var status apierrs.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError {
		return fmt.Errorf("answered with %w, want code 500", err)
	}
	for _, part := range []string{"connection is unauthorized: ", "DatastoreMigration " + setup.MigrationName} {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("it does not say %q: %w", part, err)
		}
	}
	return nil
}
