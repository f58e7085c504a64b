package statusview

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
)

// migrationKind is the kind that has more to show than a machine: progress, a lock, conflicts.
var migrationKind = schema.GroupKind{Group: migrationv1.GroupVersion.Group, Kind: "DatastoreMigration"}

// addMigration adds what only migrations have.
func addMigration(o *Overview, dm *migrationv1.DatastoreMigration, now time.Time) {
	st := &dm.Status
	o.Progress, o.Lock, o.CopyAhead = progressOf(st, now), lockOf(st, now), st.CopyAhead
	o.Conflicts, o.ConflictCount = st.Conflicts, conflictCount(st)
}

// forPeople are actions that wait for what only a person can mend. A roll-out is not among
// them: an operator may be at it.
var forPeople = []string{datastoremigration.PreflightAction, datastoremigration.PlanAction, datastoremigration.DetectAction, datastoremigration.CopyAction}

// waiting are actions that take and copy nothing: an object that is stored in a step of one
// waits there. Where the CRD of the object prunes what the manager writes about them, the
// message tells of a step that waits.
var waiting = []string{datastoremigration.PreflightAction, datastoremigration.PlanAction, datastoremigration.DetectAction, datastoremigration.RolloutAction}

func lockOf(st *migrationv1.DatastoreMigrationStatus, now time.Time) *Lock {
	if st.DatastoreLockedAt == nil {
		return nil
	}
	l := &Lock{Since: instant(st.DatastoreLockedAt), Seconds: now.Sub(st.DatastoreLockedAt.Time).Seconds()}
	if st.Lock != nil {
		l.Mode, l.Deadline = st.Lock.Mode, instant(st.Lock.Deadline)
	}
	return l
}

func conflictCount(st *migrationv1.DatastoreMigrationStatus) int32 {
	n := int32(len(st.Conflicts))
	if st.Progress != nil {
		n = max(n, st.Progress.Conflicts)
	}
	return n
}

func progressOf(st *migrationv1.DatastoreMigrationStatus, now time.Time) *Progress {
	p := st.Progress
	if p == nil {
		return nil
	}
	out := &Progress{
		Total: int64(p.Total), Done: int64(p.Finished()), Conflicts: int64(p.Conflicts), NotCopied: p.NotCopied, OnlyInV3: p.OnlyInV3,
		Kinds: p.TotalTypes, KindsDone: p.CompletedTypes, Current: p.CurrentType,
	}
	for _, k := range p.ByKind() {
		out.PerKind = append(out.PerKind, KindProgress{Kind: k.Kind, Done: k.Done, Total: k.Total, Conflicts: max(k.Conflicts, conflictsOf(st, k.Kind))})
	}
	out.ObjectsPerSecond = float64(p.ObjectsPerSecond)
	if left := out.Total - out.Done - out.Conflicts; out.ObjectsPerSecond > 0 && left > 0 {
		out.ExpectedEnd = new(now.UTC().Add(time.Duration(float64(left) / out.ObjectsPerSecond * float64(time.Second))))
	}
	return out
}

func conflictsOf(st *migrationv1.DatastoreMigrationStatus, kind string) (n int64) {
	for _, d := range st.Progress.TypeDetails {
		if d.Kind == kind && d.Conflicts > 0 {
			return int64(d.Conflicts)
		}
	}
	for _, c := range st.Conflicts {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

// waitsIn tells that a step waits that does one of some actions.
func (a advisor) waitsIn(p *v1alpha1.Phase, actions ...string) bool {
	return slices.ContainsFunc(a.overview.WhyNot, func(c Closed) bool { return slices.Contains(actions, a.actionOf(p, c.Step)) })
}

func deed(why, command string) Remedy { return Remedy{Why: why, Command: command} }

// migrationAdvice is what helps a migration on.
func (a advisor) migrationAdvice(p *v1alpha1.Phase) []Remedy {
	var all []Remedy
	o := a.overview
	if o.ConflictCount > 0 {
		all = append(all, deed("see both sides of each conflict, and what resolves it", "kubectl phasegate conflicts "+o.Name))
	}
	for _, c := range o.WhyNot {
		if help, ok := mends[a.actionOf(p, c.Step)]; ok {
			all = append(all, deed(help.Why, strings.ReplaceAll(help.Command, "NAME", o.Name)))
		}
	}
	if a.waitsIn(p, datastoremigration.RolloutAction) {
		all = append(all, rollout(a.result)...)
	}
	return all
}

// migrationEnds are the ways out of a migration for good: after success, and where a person
// has to decide.
func migrationEnds(p *v1alpha1.Phase, o *Overview) []Remedy {
	switch {
	case o.Deleting:
		return nil
	case o.Outcome == Succeeded:
		return []Remedy{deed("nothing has to be done; when you are sure of v3, remove v1 for good", "kubectl phasegate cleanup "+o.Name)}
	case p.PointOfNoReturn || p.OnDelete == nil || p.OnDelete.Hold != "":
		return nil
	case o.Outcome == WaitsForPerson:
		return []Remedy{deed("or roll back", "kubectl phasegate abort "+o.Name+" --wait")}
	case o.Outcome == Failed && p.OnDelete.Immediate:
		return []Remedy{deed("it was refused; see why, then delete it and create another one", "kubectl delete datastoremigration "+o.Name)}
	}
	return nil
}

// mends is what helps against what a step waits for, by its action.
var mends = map[string]Remedy{
	datastoremigration.PreflightAction: deed("fix what the message names; all checks, with their remedies", "kubectl phasegate check --controllers datastoremigration"),
	datastoremigration.PlanAction:      deed("correct these objects in v1; all of them, with the field and the rule", "kubectl phasegate plan NAME"),
	datastoremigration.CopyAction:      deed("correct what the message names in v1; nothing is locked", "kubectl phasegate plan NAME"),
}

// rollout tells how the components come to run with v3 that a step has found without it.
func rollout(result map[string]any) []Remedy {
	namespace := nameIn(result["namespace"])
	kubectl := "kubectl"
	if namespace != "" {
		kubectl += " -n " + namespace
	}
	var all []Remedy
	if name := nameIn(result["configMap"]); name != "" {
		has, _ := result["configMapHasGroup"].(bool)
		all = append(all, deed("let the CNI plugin take the group from calico-node's variable, unless the Tigera operator does it, and put it into your manifests",
			datastoremigration.CNICommand(namespace, name, has)))
	}
	if unset := components(result["unset"]); len(unset) > 0 {
		all = append(all, deed("let Calico's components use v3, unless the Tigera operator does it, and put it into your manifests",
			kubectl+" set env "+strings.Join(unset, " ")+" CALICO_API_GROUP=projectcalico.org/v3"))
	}
	for _, component := range components(result["restart"]) {
		all = append(all, deed("let "+component+" write the CNI configuration anew", kubectl+" rollout restart "+component))
	}
	for _, component := range components(result["rolling"]) {
		all = append(all, deed("see how far "+component+" is rolled out", kubectl+" rollout status "+component))
	}
	return all
}

// components are the components of a list, as kubectl names them.
func components(list any) []string {
	items, _ := list.([]any)
	var all []string
	for _, item := range items {
		text, _ := item.(string)
		if resource, name, _ := strings.Cut(text, "/"); nameIn(resource) != "" && nameIn(name) != "" {
			all = append(all, text)
		}
	}
	return all
}

// nameIn is the name that an output is; empty where it is none. Commands are made of it, which people type as they are
// printed, and who may write the status of an object may put anything there.
func nameIn(output any) string {
	text, _ := output.(string)
	if len(validation.IsDNS1123Subdomain(text)) > 0 {
		return ""
	}
	return text
}
