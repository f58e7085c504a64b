package datastoremigration

import (
	"context"
	"fmt"
)

func (s *steps) v1CRDsInstalled(ctx context.Context, _ *migration) (bool, string, error) {
	for _, kind := range s.Registry.All() {
		if crd, err := s.crd(ctx, kind.V1CRDName()); crd != nil || err != nil {
			return err == nil, "", err
		}
	}
	return false, "no CRD of group crd.projectcalico.org is installed: there is nothing to migrate", nil
}

// onlyMigration keeps two migrations apart. Of two that are new, the older one
// goes first; the UID decides between twins.
func (s *steps) onlyMigration(ctx context.Context, dm *migration) (bool, string, error) {
	all, err := s.migrations(ctx)
	if err != nil {
		return false, "", err
	}
	for i := range all {
		other := &all[i]
		if other.UID != dm.UID && goesBefore(other, dm) {
			return false, fmt.Sprintf("DatastoreMigration %s is active (%s): delete this one, or the other one first", other.Name, displayPhase(other)), nil
		}
	}
	return true, "", nil
}

func displayPhase(dm *migration) string {
	if dm.Status.Phase == "" {
		return "new"
	}
	return dm.Status.Phase
}

// goesBefore tells whether other has begun, or will begin before dm.
func goesBefore(other, dm *migration) bool {
	switch phase := other.Status.Machine.Phase; {
	case len(other.Status.Machine.HeldNames()) > 0:
		return true
	case phase == phaseFailed || phase == "Rejected":
		return false
	case phase != "" && len(other.Finalizers) > 0:
		return true
	}
	a, b := other.CreationTimestamp.Time, dm.CreationTimestamp.Time
	return a.Before(b) || a.Equal(b) && other.UID < dm.UID
}
