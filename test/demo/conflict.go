package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// The object in the way: a leftover in the v3 CRD's storage, with other content
// than the v1 object of that name.
const (
	conflictKind = "GlobalNetworkSet"
	conflictName = "blocklist-3"
	conflictNet  = "203.0.113.99/32"
)

// plant creates the leftover. It works only before the stand-in is registered:
// then the CRD's storage is hidden behind it.
func plant(ctx context.Context, s *setup.Setup) error {
	kind, found := s.Registry.Kind(conflictKind)
	if !found {
		return fmt.Errorf("plant a conflict: %s is no kind of the registry", conflictKind)
	}
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return fmt.Errorf("plant a conflict: %w", err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{conflictNet}}}}
	obj.SetGroupVersionKind(kind.V3GVK())
	obj.SetName(conflictName)
	if _, err := client.Resource(kind.V3GVR()).Create(ctx, obj, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("plant a conflict: %w", err)
	}
	return nil
}

// meetConflict waits until the migration stops at the leftover and shows it.
func (s *story) meetConflict(ctx context.Context) error {
	if _, err := s.follow(ctx, "WaitingForConflictResolution", copyLimit); err != nil {
		return err
	}
	dm, err := s.namesConflict(ctx)
	if err != nil {
		return err
	}
	table, err := s.kubectl(ctx, "get", "datastoremigrations")
	if err != nil {
		return err
	}
	s.out.block(table)
	if n := len(dm.Status.Conflicts); n != 1 {
		return fmt.Errorf("status.conflicts has %d entries, not 1: %v", n, dm.Status.Conflicts)
	}
	c := dm.Status.Conflicts[0]
	if c.Kind != conflictKind || c.Name != conflictName || len(c.Fields) == 0 {
		return fmt.Errorf("status.conflicts names another object than %s %s, or no field: %v", conflictKind, conflictName, c)
	}
	s.out.line("status.conflicts names %s %s, and what differs:", c.Kind, c.Name)
	for _, field := range c.Fields {
		s.out.line("  %s", field)
	}
	return nil
}

// namesConflict waits for the message that an operator would read: it follows
// the phase by as long as the conflicts take to be looked for once more.
func (s *story) namesConflict(ctx context.Context) (dm *migrationv1.DatastoreMigration, err error) {
	err = harness.Await(ctx, "a message that names the conflict", messageLimit, func(ctx context.Context) error {
		if dm, err = s.scene.Migration(ctx, setup.MigrationName); err != nil {
			return err
		}
		if !strings.Contains(dm.Status.Message, conflictName) {
			return fmt.Errorf("it says %q", dm.Status.Message)
		}
		return nil
	})
	return dm, err
}

// resolveConflict decides for v1, whose content the cluster has lived by. Nothing is locked:
// under the name that people know, Calico's API server would delete the v1 object.
func (s *story) resolveConflict(ctx context.Context) error {
	kind, found := s.scene.Registry.Kind(conflictKind)
	if !found {
		return errors.New("resolve the conflict: its kind is gone from the registry")
	}
	out, err := s.kubectl(ctx, "delete", kind.V3Plural()+"."+migrationv1.SideDoorVersion+"."+resources.V3Group, conflictName)
	if err != nil {
		return err
	}
	s.out.block(out)
	return nil
}
