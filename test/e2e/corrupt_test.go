package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	corruptions = 100
	// corruptSeed repeats a run: the test prints what it was.
	corruptSeed = "CORRUPT_SEED"
)

// Somebody changes any one field of a copy, between the copying and the verification:
// it is found and named, whatever it was, and the migration does not converge.
func TestEveryCorruptionIsFound(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(5, objects)})
	w.manager(t, "--phases-dir", gated(t, fastConflicts))
	w.start(t, setup.MigrationName, "remapped")
	dm := w.awaitGate(t, setup.MigrationName, "remapped")

	corrupted := w.corrupt(t, corruptions)
	w.annotate(t, dm.Name, map[string]string{openGates: gatesBefore("verified")})
	dm = w.await(t, dm.Name, waiting)
	if dm.Status.Progress.Conflicts != corruptions || dm.Status.Verified != nil {
		t.Errorf("%d of %d corruptions are counted, verified: %v", dm.Status.Progress.Conflicts, corruptions, dm.Status.Verified)
	}
	for _, c := range dm.Status.Conflicts {
		if fields := strings.Join(c.Fields, " "); len(c.Fields) == 0 || corrupted[c.Kind+" "+c.Namespace+"/"+c.Name] == "" {
			t.Errorf("status names %s %s/%s (%s), which nobody has touched", c.Kind, c.Namespace, c.Name, fields)
		}
	}
	// The status has room for some. All are named to whoever asks again.
	found, err := copier.New(w.Registry, w.Client, dm.UID).Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for _, c := range found.Conflicts {
		name := c.Kind + " " + c.Namespace + "/" + c.Name
		named[name] = corrupted[name]
		if c.Cause != copier.CauseEdited || len(c.Fields) == 0 {
			t.Errorf("%s, where somebody has changed %s, is %s: %v", name, corrupted[name], c.Cause, c.Fields)
		}
	}
	if diff := cmp.Diff(corrupted, named); diff != "" {
		t.Errorf("corruptions and what is named (-corrupted +named):\n%s", diff)
	}
	t.Logf("%d of %d corruptions found and named", len(named), corruptions)
	w.remove(t, dm.Name)
	if left := w.stored(t); slices.ContainsFunc(left, func(name string) bool { return !strings.HasPrefix(name, "tiers/") }) {
		t.Errorf("after the abort v3 still holds %v", left)
	}
}

// corrupt changes one field each of n copies, as a foreign writer, and returns what it
// changed by object. A change that the server refuses, or that means nothing, is
// drawn again.
func (w *world) corrupt(t *testing.T, n int) map[string]string {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(corruptSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", corruptSeed, seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	done, places, kinds := map[string]string{}, map[string]int{}, map[string]bool{}
	copies := w.copies(t)
	passing := w.past(t, managerAccount) // the fence around v3 lets nobody else do it
	for tries := 0; len(done) < n; tries++ {
		if tries == 50*n {
			t.Fatalf("only %d of %d corruptions were accepted", len(done), n)
		}
		kind := w.Registry.Kinds()[draw.IntN(len(w.Registry.Kinds()))]
		if len(copies[kind.Name()]) == 0 {
			continue
		}
		i, what := draw.IntN(len(copies[kind.Name()])), draw.IntN(6)
		obj := copies[kind.Name()][i]
		if len(obj.GetOwnerReferences()) > 0 && places["ownerReferences"] < 5 {
			what = 3 // few have owners
		}
		place, ok := corruptOne(t, passing, draw, what, kind, obj)
		if !ok {
			continue
		}
		copies[kind.Name()] = slices.Delete(copies[kind.Name()], i, i+1)
		done[fmt.Sprintf("%s %s/%s", kind.Name(), obj.GetNamespace(), obj.GetName())] = place
		places[strings.SplitN(place, " ", 2)[0]]++
		kinds[kind.Name()] = true
	}
	t.Logf("corrupted %v, in %d kinds", places, len(kinds))
	return done
}

// past is a client that the fences let pass.
func (w *world) past(t *testing.T, account string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.KubeconfigOf(account))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	passing, err := client.New(config, client.Options{Scheme: w.Client.Scheme(), Mapper: w.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return passing
}

func (w *world) copies(t *testing.T) map[string][]*unstructured.Unstructured {
	out := map[string][]*unstructured.Unstructured{}
	for _, kind := range w.Registry.Kinds() {
		for _, obj := range w.list(t, kind.V3GVK()) {
			if obj.GetAnnotations()[migrationv1.AnnotationMigratedBy] != "" {
				out[kind.Name()] = append(out[kind.Name()], obj)
			}
		}
	}
	return out
}

func corruptOne(t *testing.T, by client.Client, draw *rand.Rand, what int, kind *resources.Kind, obj *unstructured.Unstructured) (place string, ok bool) {
	t.Helper()
	after := obj.DeepCopy()
	switch what {
	case 0:
		place = "labels " + corruptMap(draw, after.GetLabels(), after.SetLabels)
	case 1:
		place = "annotations " + corruptMap(draw, after.GetAnnotations(), after.SetAnnotations)
	case 2:
		place = "finalizers"
		corruptFinalizers(draw, after)
	case 3:
		place = "ownerReferences"
		corruptOwners(draw, after)
	default:
		spec, _ := after.Object["spec"].(map[string]any)
		place = "spec " + corruptFields(draw, spec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	err := by.Patch(ctx, after, client.MergeFrom(obj), client.FieldOwner("a-stranger"))
	if err != nil && !apierrs.IsInvalid(err) && !apierrs.IsForbidden(err) && !apierrs.IsBadRequest(err) {
		t.Fatalf("corrupt %s of %s %s: %v", place, kind.Name(), obj.GetName(), err)
	}
	return place, err == nil && len(resources.Diff(kind, nil, obj, after)) > 0
}

func corruptFinalizers(draw *rand.Rand, obj *unstructured.Unstructured) {
	if f := obj.GetFinalizers(); len(f) > 0 && draw.IntN(2) == 0 {
		obj.SetFinalizers(f[1:])
	} else {
		obj.SetFinalizers(append(f, "test.example.com/foreign"))
	}
}

// corruptOwners adds none: the garbage collector would have its say.
func corruptOwners(draw *rand.Rand, obj *unstructured.Unstructured) {
	refs := obj.GetOwnerReferences()
	if len(refs) == 0 {
		return
	}
	if draw.IntN(2) == 0 {
		obj.SetOwnerReferences(refs[1:])
		return
	}
	blocks := refs[0].BlockOwnerDeletion == nil || !*refs[0].BlockOwnerDeletion
	refs[0].BlockOwnerDeletion = &blocks
	obj.SetOwnerReferences(refs)
}

// corruptMap changes or removes an entry, or adds one. Our own notes are no content.
func corruptMap(draw *rand.Rand, entries map[string]string, set func(map[string]string)) string {
	entries = maps.Clone(entries)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if !strings.HasPrefix(name, migrationv1.GroupVersion.Group) {
			names = append(names, name)
		}
	}
	name, what := "foreign", draw.IntN(3)
	if len(names) > 0 && what < 2 {
		name = names[draw.IntN(len(names))]
	}
	if entries == nil {
		entries = map[string]string{}
	}
	if _, there := entries[name]; there && what == 1 {
		delete(entries, name)
	} else {
		entries[name] += "x"
	}
	set(entries)
	return name
}

// corruptFields changes one field somewhere below, and says where.
func corruptFields(draw *rand.Rand, fields map[string]any) string {
	if len(fields) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(fields))
	name := names[draw.IntN(len(names))]
	if draw.IntN(6) == 0 {
		delete(fields, name)
		return name
	}
	switch value := fields[name].(type) {
	case map[string]any:
		return name + "." + corruptFields(draw, value)
	case []any:
		if len(value) == 0 {
			return name
		}
		i := draw.IntN(len(value))
		if item, ok := value[i].(map[string]any); ok && draw.IntN(2) == 0 {
			return fmt.Sprintf("%s[%d].%s", name, i, corruptFields(draw, item))
		}
		fields[name] = slices.Delete(slices.Clone(value), i, i+1)
	default:
		fields[name] = corruptScalar(draw, value)
	}
	return name
}

func corruptScalar(draw *rand.Rand, value any) any {
	switch value := value.(type) {
	case bool:
		return !value
	case int64:
		return value + 1 + draw.Int64N(3)
	case float64:
		return value + 0.5
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil {
			return metav1.NewTime(at.Add(time.Minute)).UTC().Format(time.RFC3339)
		}
		return value + "1"
	}
	return value
}
