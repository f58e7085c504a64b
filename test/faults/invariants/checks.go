package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/equality"
)

// lost is I1.
func (r Run) lost() []string {
	flaws := equality.Compare(r.Before.V3, r.After.V3).Missing
	if r.End == CleanedUp {
		return flaws
	}
	for key := range r.Before.V1 {
		if _, found := r.After.V1[key]; !found {
			flaws = append(flaws, fmt.Sprintf("%s is gone from v1", key))
		}
	}
	return flaws
}

// strays is I2.
func (r Run) strays() []string {
	flaws := equality.Compare(r.Before.V3, r.After.V3).Extra
	for key := range r.After.V1 {
		if _, found := r.Before.V1[key]; !found {
			flaws = append(flaws, fmt.Sprintf("%s is new in v1", key))
		}
	}
	switch r.End {
	case GivenBack:
		if diff := cmp.Diff(r.Before.Stored, r.After.Stored); diff != "" {
			flaws = append(flaws, "the storage of v3 (-before +after):\n"+diff)
		}
	case CleanedUp:
		flaws = append(flaws, noted(r.After.V3)...)
	case AtGate, Open:
		for key, obj := range r.After.V3 {
			by, adopted := obj.GetAnnotations()[migrationv1.AnnotationMigratedBy], builtinTier(key.Name) && key.Kind == "Tier"
			if by != string(r.migration()) && (by != "" || !adopted) {
				flaws = append(flaws, fmt.Sprintf("%s was created by %q, not by migration %s", key, by, r.migration()))
			}
		}
	}
	return flaws
}

// noted are the objects that bear a note of the migration.
func noted(side equality.Side) []string {
	var flaws []string
	for key, obj := range side {
		for name := range obj.GetAnnotations() {
			if strings.HasPrefix(name, notes) {
				flaws = append(flaws, fmt.Sprintf("%s still has annotation %s", key, name))
			}
		}
	}
	return flaws
}

const notes = "migration.projectcalico.org/"

// content is I3. What is released is as it was, byte for byte. What is migrated says
// what v3 said before, whoever served it; and v1 has kept it.
func (r Run) content() []string {
	if r.End == GivenBack {
		return changed(r.Before.V1, r.After.V1)
	}
	c := equality.Compare(r.Before.V3, r.After.V3)
	flaws := c.Different
	for _, name := range c.NoStatus {
		kind, _, _ := strings.Cut(name, " ")
		if known, found := resources.Default().Kind(kind); found && known.HasStatus(nil) {
			flaws = append(flaws, name+" has no status any more")
		}
	}
	for key, obj := range r.After.V1 {
		before, found := r.Before.V1[key]
		if found && key.Kind != resources.Default().Lock().Name() && !cmp.Equal(before.Object["spec"], obj.Object["spec"]) {
			flaws = append(flaws, fmt.Sprintf("%s has another spec in v1", key))
		}
	}
	return flaws
}

// changed lists the objects of both sides that differ in more than what every write
// changes.
func changed(before, after equality.Side) []string {
	var flaws []string
	for key, want := range before {
		have, found := after[key]
		if !found {
			flaws = append(flaws, fmt.Sprintf("%s is gone", key))
		} else if diff := cmp.Diff(bare(want), bare(have)); diff != "" {
			flaws = append(flaws, fmt.Sprintf("%s (-before +after):\n%s", key, diff))
		}
	}
	for key := range after {
		if _, found := before[key]; !found {
			flaws = append(flaws, fmt.Sprintf("%s is new", key))
		}
	}
	return flaws
}

// bare leaves out what every write changes.
func bare(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	if obj.GetKind() == "APIService" {
		delete(obj.Object, "status") // the API server tells there whether it gets an answer
	}
	return obj.Object
}

// others is I5. The APIService and the fence are the migration's to change, until it
// releases them.
func (r Run) others() []string {
	if r.End == GivenBack {
		return changed(r.Before.Others, r.After.Others)
	}
	before, after := equality.Side{}, equality.Side{}
	for _, side := range []struct{ from, to equality.Side }{{r.Before.Others, before}, {r.After.Others, after}} {
		for key, obj := range side.from {
			if obj.GetLabels()[SentinelLabel] != "" {
				side.to[key] = withoutOwners(obj)
			}
		}
	}
	flaws := changed(before, after)
	if r.End == AtGate {
		return flaws
	}
	for key, obj := range r.Before.Others {
		if now := r.After.Others[key]; now != nil && obj.GetLabels()[SentinelLabel] != "" {
			if diff := cmp.Diff(named(obj), named(now)); diff != "" {
				flaws = append(flaws, fmt.Sprintf("%s: owners (-before +after):\n%s", key, diff))
			}
		}
	}
	return append(flaws, noted(after)...)
}

// withoutOwners leaves owners out, and until they are put back the note about them.
func withoutOwners(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	obj.SetOwnerReferences(nil)
	annotations := obj.GetAnnotations()
	if delete(annotations, migrationv1.AnnotationDetachedOwners); len(annotations) == 0 {
		annotations = nil // as if there had never been any
	}
	obj.SetAnnotations(annotations)
	return obj
}

// named are the owners by name, as users see them.
func named(obj *unstructured.Unstructured) []string {
	var names []string
	for _, ref := range obj.GetOwnerReferences() {
		names = append(names, strings.Replace(ref.APIVersion, resources.V1Group+"/v1", resources.V3Group+"/v3", 1)+" "+ref.Kind+" "+ref.Name)
	}
	slices.Sort(names)
	return names
}

// owners is I8: whoever is named as the owner of something is there, with that UID.
func (r Run) owners() []string {
	if r.End == AtGate {
		return nil // nothing is owned by Calico while both sides change places: see others
	}
	var flaws []string
	for _, side := range []equality.Side{r.After.V3, r.After.Others} {
		for key, obj := range side {
			for _, ref := range obj.GetOwnerReferences() {
				if flaw := r.dangling(key.Namespace, ref); flaw != "" {
					flaws = append(flaws, fmt.Sprintf("%s: %s", key, flaw))
				}
			}
		}
	}
	return flaws
}

func (r Run) dangling(namespace string, ref metav1.OwnerReference) string {
	key := equality.Key{Kind: ref.Kind, Name: ref.Name}
	if kind, found := resources.Default().Kind(ref.Kind); found && kind.Namespaced() {
		key.Namespace = namespace // an owner is in the same namespace, or in none
	}
	var owner *unstructured.Unstructured
	switch group, _, _ := strings.Cut(ref.APIVersion, "/"); {
	case group == resources.V3Group:
		owner = r.After.V3[key]
	case group == resources.V1Group && r.End == GivenBack:
		owner = r.After.V1[key]
	case group == resources.V1Group:
		return fmt.Sprintf("its owner %s is still that of v1", key)
	default:
		return ""
	}
	switch {
	case owner == nil:
		return fmt.Sprintf("its owner %s is not there", key)
	case owner.GetUID() != ref.UID:
		return fmt.Sprintf("its owner %s has UID %s, the reference says %s", key, owner.GetUID(), ref.UID)
	}
	return ""
}

// unlocks is I9.
func (r Run) unlocks() []string {
	count := 0
	for i, ready := range r.Record.V1Ready {
		if i > 0 && ready && !r.Record.V1Ready[i-1] {
			count++
		}
	}
	if count > 1 || count == 1 && r.End != GivenBack {
		return []string{fmt.Sprintf("it was unlocked %d times: datastoreReady was %v", count, r.Record.V1Ready)}
	}
	return nil
}
