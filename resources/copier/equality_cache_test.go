package copier_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// told is what a migration says of one round of changes. Of what differs from run to run, UIDs and times,
// it has nothing.
type told struct {
	Before    copier.Verification
	Conflicts map[string]string
	Copied    copier.Result
	Owners    copier.RemapResult
	After     copier.Verification
}

// A ledger saves time and changes nothing: whatever happens to either side, a migration with one says and
// does what a migration without one says and does.
func TestALedgerChangesNothing(t *testing.T) {
	const seed = 1
	with, without := rounds(t, seed, copier.NewEqualityCache()), rounds(t, seed, nil)
	if diff := cmp.Diff(without, with, cmpopts.IgnoreFields(copier.KindVerification{}, "Digest"),
		cmpopts.IgnoreFields(resources.FieldDiff{}, "Want", "Have"), cmpopts.IgnoreFields(resources.Problem{}, "Message")); diff != "" {
		t.Errorf("(-without +with a ledger):\n%s", diff)
	}
}

// rounds makes random changes, and looks at what a migration makes of them, several times.
func rounds(t *testing.T, seed uint64, ledger *copier.EqualityCache) (all []told) {
	t.Helper()
	w := &world{scene: newScene(t, interceptor.Funcs{}), Rand: rand.New(rand.NewPCG(seed, seed))}
	w.copier = copier.New(resources.Default(), live.Client, owner, copier.WithEqualityCache(ledger))
	fresh := copier.New(resources.Default(), live.Client, owner)
	w.furnish()
	for round := range 4 {
		if round > 0 {
			for range 25 {
				w.change()
			}
		}
		if round == 2 {
			w.changeMany()
		}
		said := told{Before: w.mustVerify(), Copied: w.mustCopy(), Conflicts: map[string]string{}}
		var err error
		if said.Owners, err = w.copier.RemapOwners(t.Context()); err != nil {
			t.Fatal(err)
		}
		compared, err := w.copier.Compare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said.Conflicts = findings(compared.Conflicts)
		said.After = w.mustVerify()
		truth, err := fresh.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(truth, said.After); diff != "" {
			t.Errorf("seed %d, round %d: the digests as well are those of a full look (-full +this):\n%s", seed, round, diff)
		}
		all = append(all, said)
	}
	return all
}

// world is a scene that changes at random.
type world struct {
	*scene
	*rand.Rand
	made int
}

// object is one that may change: in v1, and in v3 under the same name.
type object struct {
	kind, text string
	edits      []string // merge patches, good for both sides
}

var sorts = []object{
	{"GlobalNetworkSet", "metadata: {name: %s, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}", []string{`{"spec":{"nets":["11.0.0.0/8"]}}`, `{"spec":{"nets":["10.0.0.0/8"]}}`, `{"metadata":{"labels":{"team":"red"}}}`, `{"metadata":{"labels":{"team":null}}}`}},
	{"Tier", "metadata: {name: %s}\nspec: {order: 5, defaultAction: Deny}", []string{`{"spec":{"order":6}}`, `{"spec":{"order":5}}`}},
	{"IPPool", "metadata: {name: %s}\n" + poolSpec, []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"c"}}}`}},
	{"IPAMHandle", "metadata: {name: %s}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}", []string{`{"spec":{"block":{"10.0.0.0/26":2}}}`, `{"spec":{"block":{"10.0.0.0/26":1}}}`}},
	{"GlobalNetworkPolicy", owned("owner.%s", "crd.projectcalico.org/v1", "Tier", "owner", "OWNER") + "spec: {tier: owner, selector: all()}", nil},
}

func (w *world) furnish() {
	w.Helper()
	w.v1("Tier", "metadata: {name: owner}\nspec: {order: 1}")
	for range 6 * len(sorts) {
		w.add()
	}
	for i := range 150 {
		w.v1("IPAMHandle", fmt.Sprintf("metadata: {name: many-%d}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}", i))
	}
	w.v3("GlobalNetworkSet", "metadata: {name: theirs-0}\nspec: {nets: [12.0.0.0/8]}")
	w.v1("GlobalNetworkSet", "metadata: {name: theirs-0}\nspec: {nets: [10.0.0.0/8]}")
}

func (w *world) add() {
	w.Helper()
	sort, obj := w.put(v1, w.made, "")
	w.made++
	if sort.kind == "IPPool" && w.IntN(2) == 0 {
		w.setStatus(w.get(v1(sort.kind), obj.GetName()), "True")
	}
}

// parsed is the object with this number as it is created.
func (w *world) parsed(number int) (object, *unstructured.Unstructured) {
	sort := sorts[number%len(sorts)]
	return sort, w.parse(fmt.Sprintf("kind: "+sort.kind+"\n"+sort.text, fmt.Sprintf("o-%d", number)))
}

// put creates an object anew, with an annotation that marks it as ours if that is wanted.
func (w *world) put(side func(string) schema.GroupVersionKind, number int, mark string) (object, *unstructured.Unstructured) {
	w.Helper()
	sort, obj := w.parsed(number)
	obj.SetGroupVersionKind(side(sort.kind))
	annotations := obj.GetAnnotations()
	if hidden := annotations[resources.MetadataAnnotation]; hidden != "" {
		annotations[resources.MetadataAnnotation] = strings.ReplaceAll(hidden, "OWNER", string(w.get(v1("Tier"), "owner").GetUID()))
		if side(sort.kind).Group == resources.V3Group {
			delete(annotations, resources.MetadataAnnotation)
		}
		obj.SetAnnotations(annotations)
	}
	if mark != "" {
		obj.SetAnnotations(map[string]string{resources.MigratedByAnnotation: mark})
	}
	if err := live.Client.Create(w.Context(), obj); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	}
	return sort, obj
}

// change does one of the things that can happen to an object on either side.
func (w *world) change() {
	w.Helper()
	number := w.IntN(w.made)
	sort, obj := w.parsed(number)
	name := obj.GetName()
	side := []func(string) schema.GroupVersionKind{v1, v3}[w.IntN(2)]
	gvk := side(sort.kind)
	switch w.IntN(10) {
	case 0, 1:
		w.add()
	case 2:
		w.delete(gvk, name)
	case 3: // the same content, another object
		w.delete(gvk, name)
		w.put(side, number, []string{"", string(owner)}[w.IntN(2)])
	case 4: // terminating
		w.touch(gvk, name, `{"metadata":{"finalizers":["test/hold"]}}`)
		w.delete(gvk, name)
	case 5: // a new version of the same content
		w.touch(gvk, name, `{"metadata":{"annotations":{"x":"y"}}}`)
		w.touch(gvk, name, `{"metadata":{"annotations":{"x":null}}}`)
	case 6:
		w.touch(v3(sort.kind), name, `{"metadata":{"annotations":{"`+resources.MigratedByAnnotation+`":null}}}`)
	case 7:
		w.touch(v3(sort.kind), name, `{"metadata":{"ownerReferences":null}}`)
	default:
		if len(sort.edits) > 0 {
			w.touch(gvk, name, sort.edits[w.IntN(len(sort.edits))])
		}
	}
}

// changeMany changes more objects than are read one by one.
func (w *world) changeMany() {
	w.Helper()
	for i := range 150 {
		gvk := v1("IPAMHandle")
		if i%15 == 0 {
			gvk = v3("IPAMHandle")
		}
		w.touch(gvk, fmt.Sprintf("many-%d", i), `{"spec":{"block":{"10.0.0.0/26":7}}}`)
	}
}

func (w *world) touch(gvk schema.GroupVersionKind, name, patch string) {
	w.Helper()
	err := live.Client.Patch(w.Context(), named(gvk, name), client.RawPatch(types.MergePatchType, []byte(patch)))
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(gvk schema.GroupVersionKind, name string) {
	w.Helper()
	if err := live.Client.Delete(w.Context(), named(gvk, name)); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
}

func named(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	obj.SetName(name)
	return obj
}
