package datastoremigration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/resources/copier"
)

// isWaived tells that a person has waived a check for this very migration. A waiver that comes along with a
// manifest, from git or from another cluster, bears another UID: it was not decided about this one.
func isWaived(dm *migration, id string) bool {
	return slices.Contains(waiversOf(dm), migrationv1.Waiver(id, dm.UID))
}

// waiversOf are the entries of the annotation as they are written.
func waiversOf(dm *migration) []string {
	return strings.FieldsFunc(dm.Annotations[migrationv1.AnnotationWaive], func(r rune) bool { return r == ',' || r == ' ' })
}

// waiverFor is the annotation by which a person waives a check for a migration.
func waiverFor(dm *migration, id string) string {
	return migrationv1.WaiverAnnotation(id, dm.UID)
}

// heedWaivers lets the checks that a person has waived warn where they would fail,
// and adds one that each waiver is about a check that may be waived. Without a
// migration, the waivers of all that there are count.
func (s *preflight) heedWaivers(dm *migration, checks []check.Check) []check.Check {
	known := []string{waiveV1Changed, copier.WaiveAltered, waiveBackup, copier.WaiveLastCopies, waiveCNI} // which are heeded by CleanUpAction, the copies, DeleteCopies and RolloutAction
	for i, c := range checks {
		if !c.Waivable {
			continue
		}
		known = append(known, c.ID)
		checks[i].Run = func(ctx context.Context) ([]check.Finding, error) {
			findings, err := c.Run(ctx)
			if err != nil || !slices.ContainsFunc(findings, isFailure) {
				return findings, err
			}
			waiving, err := s.waiving(ctx, dm)
			return waive(c.ID, waiving, findings), err
		}
	}
	slices.Sort(known)
	return append(checks, check.Check{ID: "waivers", Title: "what is waived may be waived", Run: func(ctx context.Context) ([]check.Finding, error) {
		waiving, err := s.waiving(ctx, dm)
		return unknownWaivers(waiving, known), err
	}})
}

func isFailure(f check.Finding) bool { return f.Level == check.Failure }

// waiving are the migrations whose waivers count.
func (s *preflight) waiving(ctx context.Context, dm *migration) ([]migration, error) {
	if dm != nil {
		return []migration{*dm}, nil
	}
	return s.migrations(ctx)
}

// waive makes warnings of failures, or says how a person does.
func waive(id string, waiving []migration, findings []check.Finding) []check.Finding {
	how := "waive it on the migration, with the annotation " + migrationv1.WaiverAnnotation(id, "")
	if len(waiving) == 1 && waiving[0].UID != "" { // plan asks for one that is not there yet
		how = fmt.Sprintf("waive it with the annotation %s on the migration", waiverFor(&waiving[0], id))
	}
	waived := slices.ContainsFunc(waiving, func(dm migration) bool { return isWaived(&dm, id) })
	findings = slices.Clone(findings)
	for i := range findings {
		f := &findings[i]
		switch {
		case !isFailure(*f):
		case waived:
			f.Level, f.Message = check.Warning, "waived: "+f.Message
		default:
			f.Remedy = strings.TrimPrefix(f.Remedy+", or "+how, ", or ")
		}
	}
	return findings
}

func unknownWaivers(waiving []migration, known []string) []check.Finding {
	var findings []check.Finding
	for i := range waiving {
		for _, entry := range waiversOf(&waiving[i]) {
			switch id, uid, _ := strings.Cut(entry, "@"); {
			case !slices.Contains(known, id):
				findings = append(findings, check.Finding{Level: check.Failure,
					Message: fmt.Sprintf("DatastoreMigration %s waives %q, which is no check that may be waived", waiving[i].Name, id),
					Remedy:  fmt.Sprintf("correct the annotation %s: it may list %s", migrationv1.AnnotationWaive, strings.Join(known, ", "))})
			case uid != string(waiving[i].UID):
				findings = append(findings, check.Finding{Level: check.Failure,
					Message: fmt.Sprintf("DatastoreMigration %s waives %q, which was not decided about this object (UID %s)", waiving[i].Name, entry, waiving[i].UID),
					Remedy:  fmt.Sprintf("if you have decided so for this cluster, set the annotation %s; else remove it", waiverFor(&waiving[i], id))})
			}
		}
	}
	return findings
}
