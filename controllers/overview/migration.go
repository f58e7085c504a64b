package overview

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// migrationKind is the kind that has more to show than a machine: progress, a lock, conflicts.
var migrationKind = schema.GroupKind{Group: migrationv1.GroupVersion.Group, Kind: "DatastoreMigration"}

// addMigration adds what only migrations have.
func addMigration(o *Overview, dm *migrationv1.DatastoreMigration, now time.Time) {
	st := &dm.Status
	o.Progress, o.Lock, o.CopyAhead = progressOf(st, now), lockOf(st, now), st.CopyAhead
	o.Conflicts, o.ConflictCount = st.Conflicts, conflictCount(st)
	step := st.Machine.Step
	if len(o.WhyNot) == 0 && st.Machine.OnDelete == "" && slices.Contains(waiting, step) {
		o.WhyNot = []Closed{{Step: step, Because: "the step is not done", Got: st.Message}}
	}
}

// waiting are steps that take and copy nothing: an object that is stored in one waits there.
// Where the CRD of the object prunes what the manager writes about them, the message tells of
// a step that waits.
var waiting = []string{"Preflight", "Plan", "Validate", "DetectConflicts", "ObserveRollout"}

func moment(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}

func lockOf(st *migrationv1.DatastoreMigrationStatus, now time.Time) *Lock {
	if st.DatastoreLockedAt == nil {
		return nil
	}
	l := &Lock{Since: moment(st.DatastoreLockedAt), Seconds: now.Sub(st.DatastoreLockedAt.Time).Seconds()}
	if st.Lock != nil {
		l.Mode, l.Deadline = st.Lock.Mode, moment(st.Lock.Deadline)
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
		out.PerKind = append(out.PerKind, KindProgress{Kind: k.Kind, Done: k.Done, Total: k.Total, Conflicts: conflictsOf(st, k.Kind)})
	}
	out.ObjectsPerSecond = float64(p.ObjectsPerSecond)
	if left := out.Total - out.Done - out.Conflicts; out.ObjectsPerSecond > 0 && left > 0 {
		end := now.UTC().Add(time.Duration(float64(left) / out.ObjectsPerSecond * float64(time.Second)))
		out.ExpectedEnd = &end
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

// needsPerson tells that a step has found something that only a person can mend. A roll-out
// is not among them: an operator may be at it.
func needsPerson(o *Overview) bool {
	return slices.ContainsFunc(o.WhyNot, func(c Closed) bool {
		return slices.Contains([]string{"Preflight", "Plan", "Validate", "DetectConflicts", "CopyResources"}, c.Step)
	})
}

func deed(why, command string) Deed { return Deed{Why: why, Command: command} }

// migrationAdvice is what helps a migration on.
func migrationAdvice(o *Overview, result map[string]any) []Deed {
	var all []Deed
	if o.ConflictCount > 0 {
		all = append(all, deed("see both sides of each conflict, and what resolves it", "kubectl phasegate conflicts "+o.Name))
	}
	for _, c := range o.WhyNot {
		if help, ok := mends[c.Step]; ok {
			all = append(all, deed(help.Why, strings.ReplaceAll(help.Command, "NAME", o.Name)))
		}
	}
	return append(all, rollout(o, result)...)
}

// migrationEnds are the ways out of a migration for good: after success, and where a person
// has to decide.
func migrationEnds(p *v1alpha1.Phase, o *Overview) []Deed {
	switch {
	case o.Deleting:
		return nil
	case o.Outcome == Succeeded:
		return []Deed{deed("nothing has to be done; when you are sure of v3, remove v1 for good", "kubectl phasegate cleanup "+o.Name)}
	case p.PointOfNoReturn || p.OnDelete == nil || p.OnDelete.Hold != "":
		return nil
	case o.Outcome == WaitsForPerson:
		return []Deed{deed("or give everything back", "kubectl phasegate abort "+o.Name+" --wait")}
	case o.Outcome == Failed && p.OnDelete.None:
		return []Deed{deed("it was refused as it is; see why, delete it and create another one", "kubectl delete datastoremigration "+o.Name)}
	}
	return nil
}

// mends is what helps against what a step waits for.
var mends = map[string]Deed{
	"Preflight":     deed("mend what the message names; every check, with its remedy", "kubectl phasegate check --controllers datastoremigration"),
	"Plan":          deed("correct these objects in v1; all of them, with the field and the rule", "kubectl phasegate plan NAME"),
	"Validate":      deed("correct these objects in v1; all of them, with the field and the rule", "kubectl phasegate plan NAME"),
	"CopyResources": deed("correct what the message names in v1; nothing is locked", "kubectl phasegate plan NAME"),
}

// components are how kubectl names what has to run with v3.
var components = map[string]string{
	"calico-node": "daemonset/calico-node", "calico-typha": "deployment/calico-typha", "calico-kube-controllers": "deployment/calico-kube-controllers",
}

// rollout tells how the components that ObserveRollout names come to run with v3.
func rollout(o *Overview, result map[string]any) []Deed {
	if !slices.ContainsFunc(o.WhyNot, func(c Closed) bool { return c.Step == "ObserveRollout" }) {
		return nil
	}
	kubectl := "kubectl"
	if namespace, ok := result["namespace"].(string); ok {
		kubectl += " -n " + namespace
	}
	var unset []string
	var all []Deed
	for _, text := range texts(result["pending"]) {
		name, why, _ := strings.Cut(text, " ")
		switch component := components[name]; {
		case component == "":
		case strings.HasPrefix(why, "(variable not set"):
			unset = append(unset, component)
		default:
			all = append(all, deed("see how far it is rolled out "+why, kubectl+" rollout status "+component))
		}
	}
	if len(unset) > 0 {
		all = slices.Insert(all, 0, deed("let Calico's components use v3, unless the Tigera operator does it, and put it into your manifests",
			kubectl+" set env "+strings.Join(unset, " ")+" CALICO_API_GROUP=projectcalico.org/v3"))
	}
	return all
}

func texts(list any) []string {
	items, _ := list.([]any)
	var all []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
