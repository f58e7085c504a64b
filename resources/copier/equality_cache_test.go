package copier

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
)

// told is what a migration says of one round of changes. Of what differs from run to run, UIDs and times,
// it has nothing.
type told struct {
	Before    Verification
	Conflicts map[string]string
	Copied    Result
	Owners    RemapResult
	After     Verification
}

// A ledger saves time and changes nothing: whatever happens to either side, a migration with one says and
// does what a migration without one says and does.
func TestALedgerChangesNothing(t *testing.T) {
	const seed = 1
	with, without := rounds(t, seed, NewEqualityCache()), rounds(t, seed, nil)
	if diff := cmp.Diff(without, with, cmpopts.IgnoreFields(KindVerification{}, "Digest"),
		cmpopts.IgnoreFields(resources.FieldDiff{}, "Want", "Have"), cmpopts.IgnoreFields(resources.Problem{}, "Message")); diff != "" {
		t.Errorf("(-without +with a ledger):\n%s", diff)
	}
}

// rounds makes random changes, and looks at what a migration makes of them, several times.
func rounds(t *testing.T, seed uint64, ledger *EqualityCache) (all []told) {
	t.Helper()
	w := &moving{world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, seed))}
	c, fresh := w.copier(interceptor.Funcs{}, WithEqualityCache(ledger)), w.copier(interceptor.Funcs{})
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
		now := told{Before: w.mustVerify(c), Copied: w.mustCopy(c)}
		var err error
		now.Owners, err = c.RemapOwners(t.Context())
		w.must(err)
		now.Conflicts = said(w.mustCompare(c).Conflicts)
		now.After = w.mustVerify(c)
		if diff := cmp.Diff(w.mustVerify(fresh), now.After); diff != "" {
			t.Errorf("seed %d, round %d: the digests as well are those of a full look (-full +this):\n%s", seed, round, diff)
		}
		all = append(all, now)
	}
	return all
}

// moving is a world that changes at random.
type moving struct {
	*world
	*rand.Rand
	owner types.UID
	added int
}

// sort is of objects that may change: in v1, and in v3 under the same name.
type sort struct {
	kind, text string
	edits      []string // merge patches, good for both sides
}

var sorts = []sort{
	{"GlobalNetworkSet", "metadata: {name: %s, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}", []string{`{"spec":{"nets":["11.0.0.0/8"]}}`, `{"spec":{"nets":["10.0.0.0/8"]}}`, `{"metadata":{"labels":{"team":"red"}}}`, `{"metadata":{"labels":{"team":null}}}`}},
	{"Tier", "metadata: {name: %s}\nspec: {order: 5, defaultAction: Deny}", []string{`{"spec":{"order":6}}`, `{"spec":{"order":5}}`}},
	{"IPPool", "metadata: {name: %s}\n" + poolSpec, []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"c"}}}`}},
	{"IPAMHandle", "metadata: {name: %s}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}", []string{`{"spec":{"block":{"10.0.0.0/26":2}}}`, `{"spec":{"block":{"10.0.0.0/26":1}}}`}},
	{"GlobalNetworkPolicy", owned("owner.%s", "crd.projectcalico.org/v1", "Tier", "owner", "OWNER") + "spec: {tier: owner, selector: all()}", nil},
}

func (w *moving) furnish() {
	w.Helper()
	w.owner = w.v1("Tier", "metadata: {name: owner}\nspec: {order: 1}").GetUID()
	for range 6 * len(sorts) {
		w.add()
	}
	for i := range 150 {
		w.v1("IPAMHandle", fmt.Sprintf("metadata: {name: many-%d}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}", i))
	}
	w.v3("GlobalNetworkSet", "metadata: {name: theirs-0}\nspec: {nets: [12.0.0.0/8]}")
	w.v1("GlobalNetworkSet", "metadata: {name: theirs-0}\nspec: {nets: [10.0.0.0/8]}")
}

func (w *moving) add() {
	w.Helper()
	sort, obj := w.put(v1, w.added, "")
	w.added++
	if sort.kind == "IPPool" && w.IntN(2) == 0 {
		w.setStatus(obj, "True")
	}
}

// parsed is the object with this number as it is created.
func (w *moving) parsed(number int) (sort, *unstructured.Unstructured) {
	sort := sorts[number%len(sorts)]
	return sort, object(w.T, strings.ReplaceAll(fmt.Sprintf(sort.text, fmt.Sprintf("o-%d", number)), "OWNER", string(w.owner)))
}

// put creates an object anew, with an annotation that marks it as ours if that is wanted.
func (w *moving) put(side func(string) schema.GroupVersionKind, number int, mark string) (sort, *unstructured.Unstructured) {
	w.Helper()
	sort, obj := w.parsed(number)
	obj.SetGroupVersionKind(side(sort.kind))
	if mark != "" {
		obj.SetAnnotations(map[string]string{resources.MigratedByAnnotation: mark})
	} else if side(sort.kind).Group == resources.V3Group {
		obj.SetAnnotations(nil)
	}
	w.must(client.IgnoreAlreadyExists(w.client.Create(w.Context(), obj, client.FieldOwner("test"))))
	return sort, obj
}

// change does one of the things that can happen to an object on either side.
func (w *moving) change() {
	w.Helper()
	number := w.IntN(w.added)
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
		w.put(side, number, []string{"", me}[w.IntN(2)])
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
func (w *moving) changeMany() {
	w.Helper()
	for i := range 150 {
		gvk := v1("IPAMHandle")
		if i%15 == 0 {
			gvk = v3("IPAMHandle")
		}
		w.touch(gvk, fmt.Sprintf("many-%d", i), `{"spec":{"block":{"10.0.0.0/26":7}}}`)
	}
}

func (w *moving) touch(gvk schema.GroupVersionKind, name, patch string) {
	w.Helper()
	change := client.RawPatch(types.MergePatchType, []byte(patch))
	w.must(client.IgnoreNotFound(w.client.Patch(w.Context(), named(gvk, name), change, client.FieldOwner("test"))))
}

func (w *moving) delete(gvk schema.GroupVersionKind, name string) {
	w.Helper()
	w.must(client.IgnoreNotFound(w.client.Delete(w.Context(), named(gvk, name))))
}
