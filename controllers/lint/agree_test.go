package lint_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const loadCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: loads.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Load, listKind: LoadList, plural: loads, singular: load}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          data: {type: object, additionalProperties: {type: string}}
          spec:
            type: object
            properties:
              ratio: {type: number}
              limit: {type: integer}
              size: {x-kubernetes-int-or-string: true}
              until: {type: string, format: date-time}
              day: {type: string, format: date}
              period: {type: string, format: duration}
              key: {type: string, format: byte}
              on: {type: boolean}
              wait: {type: string}
              max-age: {type: integer}
              namespace: {type: string}
              maybe: {type: string, nullable: true}
              labels: {type: object, additionalProperties: {type: string}}
              ratios: {type: array, items: {type: number}}
              texts: {type: array, items: {type: string}}
              parts: {type: array, items: {type: object, properties: {name: {type: string}, share: {type: number}}}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              phase: {type: string}
              other: {type: string}
              machine: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const loadMachine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: load}
spec:
  for: {apiVersion: example.com/v1, kind: Load}
  initial: Waiting
  variables:
  - {name: v, expr: %q}
  phases:
  - name: Waiting
    kind: waiting
    next:
    - {to: Done, when: %q, reason: Go}
    timeout: {after: 24h, to: Late, reason: TooLate}
    message: %q
    poll: 5s
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
  - {name: Late, terminal: failure, onDelete: {immediate: true}}
`

// everything of it is there, so that a field that is missing is the fault of the expression.
const loadObject = `{"metadata": {"name": "a", "namespace": "b", "labels": {"x": "y"}}, "data": {"a": "b"},
 "spec": {"ratio": 2.0, "limit": 3, "size": "10%", "until": "2026-05-01T00:00:00Z", "day": "2026-05-01", "period": "90s", "key": "YQ==",
  "on": true, "wait": "b", "max-age": 5, "namespace": "c", "maybe": null, "labels": {"x": "y"}, "ratios": [1, 2.5], "texts": ["x", "b"],
  "parts": [{"name": "a", "share": 1}], "free": {"x": 1}}}`

// judged is what the three say of a file: lint with the CRD, and the manager, as whose machine simulate runs, too.
type judged struct {
	lint    diag.Diagnostics
	manager diag.Diagnostics
	machine *fsm.Machine
}

func judge(t testing.TB, file string, crds []apiextensionsv1.CustomResourceDefinition) judged {
	t.Helper()
	def, diags := fsm.Load("load.yaml", []byte(file))
	if def == nil {
		t.Fatal(diags.Err())
	}
	b, err := lint.Known{CRDs: crds}.Bindings(def)
	if err != nil {
		t.Fatal(err)
	}
	var j judged
	_, j.lint = fsm.Bind(def, b)
	if b, err = catalog.Bindings(def); err != nil {
		t.Fatal(err)
	}
	j.machine, j.manager = fsm.Bind(def, b)
	return j
}

func loadCRDs(t testing.TB) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := lint.LoadCRDs(lint.File{Name: "crd.yaml", Data: []byte(loadCRD)})
	if err != nil {
		t.Fatal(err)
	}
	return crds
}

// seen is what a run of a machine shows of an object.
type seen struct {
	Blocked []v1alpha1.Blocked
	Message string
	Do      fsm.Verb
}

func look(t testing.TB, m *fsm.Machine, self map[string]any) seen {
	t.Helper()
	at := simulate.Epoch
	r := m.Run(v1alpha1.MachineStatus{Phase: "Waiting", Revision: m.Revision()}, fsm.Observation{Self: fsm.StaticObject(self), Now: func() time.Time { return at }})
	cmd := r.Decide(t.Context())
	return seen{Blocked: r.Status().Blocked, Message: r.Summary().Message, Do: cmd.Do}
}

// inManager is the object as the manager gives it to expressions.
func inManager(t testing.TB, stored map[string]any) map[string]any {
	t.Helper()
	data, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	object := &generic.Object{}
	if err := utiljson.Unmarshal(data, object); err != nil {
		t.Fatal(err)
	}
	self, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func inSimulation(t testing.TB, m *fsm.Machine, stored string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(stored), &content); err != nil {
		t.Fatal(err)
	}
	w, err := simulate.New(m, content)
	if err != nil {
		t.Fatal(err)
	}
	return w.Self()
}

// bothSee is what a run in the manager shows of an object, and how that of a simulation differs.
func bothSee(t testing.TB, m *fsm.Machine, stored string) (seen, string) {
	t.Helper()
	self, object := inSimulation(t, m, stored), map[string]any{}
	if err := utiljson.Unmarshal([]byte(stored), &object); err != nil {
		t.Fatal(err)
	}
	object["metadata"] = self["metadata"]
	manager := look(t, m, inManager(t, object))
	return manager, gocmp.Diff(manager, look(t, m, self))
}

// What lint with the CRD takes, the manager takes, and evaluates without an error of types, to the same as simulate.
func TestOneEnvironment(t *testing.T) {
	cases := map[string]struct {
		why, expr     string
		lint, manager string
		// got is what the manager sees of a closed exit; fails: it cannot be evaluated.
		open  bool
		fails string
	}{
		"list of fields and texts":   {why: "of an object without a schema no type is known", expr: `self.spec.wait in [self.metadata.name, "b"]`, open: true},
		"list of several types":      {why: "the same with and without a schema", expr: `[1, "b"].exists(x, x == self.spec.wait)`, open: true},
		"map of several types":       {why: "as a list", expr: `{"a": self.spec.limit, "b": self.spec.wait}["a"] == 3`, open: true},
		"whole number":               {why: "2.0 is stored as 2", expr: `self.spec.ratio * 1.5 == 3.0`, lint: "* has a value of type number on its left and one of type double on its right: convert it with double(…)", fails: "no such overload"},
		"converted":                  {why: "what lint says to do works", expr: `double(self.spec.ratio) * 1.5 == 3.0`, open: true},
		"number with an int":         {why: "CEL compares them", expr: `self.spec.ratio == 2 && self.spec.ratio > 1 && self.spec.ratio in [1.0, 2.0]`, open: true},
		"number with a double":       {why: "CEL compares them", expr: `self.spec.ratio == 2.0 && self.spec.?ratio.orValue(1.0) < 2.5`, open: true},
		"number or another":          {why: "it stays one that is whole or not", expr: `self.spec.?ratio.orValue(1.0) + 1.0 > 0.0`, lint: "+ has a value of type number on its left and one of type double on its right", fails: "no such overload"},
		"converted number":           {why: "it is a double then", expr: `double(self.spec.ratio) + 1 > 0`, lint: "+ has a value of type double on its left and one of type int on its right", manager: "+ has a value of type double on its left"},
		"numbers by a condition":     {why: "either is one", expr: `(self.spec.on ? self.spec.ratio : 1.0) == 2 && self.spec.ratio in self.spec.ratios + [2]`, lint: "+ has a value of type list(number) on its left", open: true},
		"number with a text":         {why: "it is never equal", expr: `self.spec.ratio == "2"`, lint: "== has a value of type number on its left"},
		"number of an item":          {why: "items are typed, too", expr: `self.spec.parts.all(p, p.share * 2.0 > 1.0)`, lint: "* has a value of type number on its left", fails: "no such overload"},
		"date":                       {why: "the manager has a text", expr: `self.spec.until > now`, lint: `> has a value of type string on its left and one of type timestamp on its right: convert a text with timestamp(…)`, fails: "no such overload"},
		"date converted":             {why: "what lint says to do works", expr: `timestamp(self.spec.until) > now`, open: true},
		"date of metadata":           {why: "the manager has a text", expr: `self.metadata.creationTimestamp < now`, lint: `< has a value of type string or null on its left and one of type timestamp on its right: convert a text with timestamp(…)`, fails: "no such overload"},
		"duration":                   {why: "the manager has a text", expr: `self.spec.period > duration("1m")`, lint: `convert a text with duration(…)`, fails: "no such overload"},
		"duration converted":         {why: "what lint says to do works", expr: `duration(self.spec.period) > duration("1m")`, open: true},
		"bytes":                      {why: "the manager has a text", expr: `self.spec.key == "YQ=="`, open: true},
		"int or string":              {why: "it is either", expr: `self.spec.size == "10%"`, open: true},
		"name with a dash":           {why: "CEL cannot express it", expr: `self.spec["max-age"] == 5 && self.spec[?"max-age"].orValue(1) == 5`, open: true},
		"escaped name":               {why: "as in the rules of a CRD, but the manager has no schema to read it by", expr: `self.spec.max__dash__age == 5`, lint: `self.spec has no field "max__dash__age": write self.spec["max-age"]`, fails: "no such key"},
		"word of CEL":                {why: "it can stand behind a dot", expr: `self.spec.namespace == "c" && self.metadata.namespace == "b"`, open: true},
		"free content":               {why: "the CRD keeps it, so there is something to read", expr: `self.spec.free.x == 1`, open: true},
		"null":                       {why: "a field that may be null is compared with it", expr: `self.spec.maybe == null`, open: true},
		"misspelt":                   {why: "only the CRD knows", expr: `self.spec.rato == 2`, lint: `self.spec has no field "rato"`, fails: "no such key"},
		"what the manager drops":     {why: "the manager keeps metadata, spec and its own part of the status", expr: `self.data.a == "b"`, lint: `self has no field "data"`, fails: "no such key"},
		"status that it drops":       {why: "only the phase, message, conditions and machine are kept", expr: `self.status.other == ""`, lint: `self.status has no field "other"`, fails: "no such key"},
		"text as a number":           {why: "no value of it passes", expr: `self.spec.limit == "3"`, lint: `== has a value of type int on its left and one of type string on its right`},
		"what no schema is asked of": {why: "refused by all", expr: `phase.age > 5`, lint: "> has a value of type duration", manager: "> has a value of type duration"},
	}
	crds := loadCRDs(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			j := judge(t, fmt.Sprintf(loadMachine, "true", c.expr, "m"), crds)
			says := func(who string, found diag.Diagnostics, want string) {
				t.Helper()
				if text := fmt.Sprint(found.Err()); (found.Err() == nil) != (want == "") || !strings.Contains(text, want) {
					t.Errorf("%s: %s says %v, want %q", c.why, who, found.Err(), want)
				}
			}
			says("lint", j.lint, c.lint)
			says("the manager", j.manager, c.manager)
			if j.machine == nil {
				return
			}
			manager, diff := bothSee(t, j.machine, loadObject)
			if diff != "" {
				t.Errorf("%s: manager and simulation see different things (-manager +simulation):\n%s", c.why, diff)
			}
			if open := manager.Do == fsm.Commit; open != c.open || !strings.Contains(fmt.Sprint(manager.Blocked), c.fails) {
				t.Errorf("%s: open %t, blocked by %v; want %t, %q", c.why, open, manager.Blocked, c.open, c.fails)
			}
		})
	}
}

// TestOneEnvironmentForRandomFiles does the same with random expressions and values; AGREE says how many.
func TestOneEnvironmentForRandomFiles(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("AGREE"), "300"))
	if err != nil {
		t.Fatal(err)
	}
	crds := loadCRDs(t)
	taken, evaluated, open := 0, 0, 0
	for seed := range uint64(n) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
		file := fmt.Sprintf(loadMachine, g.any(2), g.condition(3), "${"+g.any(2)+"} or ${"+g.any(1)+"}")
		j := judge(t, file, crds)
		takes := j.lint.Err() == nil
		count(&taken, takes)
		if takes && j.machine == nil {
			t.Errorf("seed %d: lint takes what the manager refuses: %v\n%s", seed, j.manager, file)
		}
		if j.machine != nil {
			evaluated += 3
			open += g.sameInBoth(t, 3, j.machine, takes && !g.loose, fmt.Sprintf("seed %d", seed), file)
		}
	}
	t.Logf("%d files: lint takes %d; %d objects seen alike by manager and simulation, %d go on", n, taken, evaluated, open)
	if taken < n/10 || open < n/100 {
		t.Errorf("the files are too bad to test anything: %d of %d are taken, %d go on", taken, n, open)
	}
}

// sameInBoth has manager and simulation look at so many objects; typed: no expression finds values of another type than
// lint does. It answers how many go on.
func (g *generator) sameInBoth(t *testing.T, n int, machine *fsm.Machine, typed bool, which, file string) (open int) {
	t.Helper()
	for range n {
		stored := g.object()
		seen, diff := bothSee(t, machine, stored)
		if diff != "" {
			t.Errorf("%s: manager and simulation see different things (-manager +simulation):\n%s\n%s\n%s", which, diff, file, stored)
		}
		if typed && strings.Contains(fmt.Sprint(seen.Blocked), "no such overload") {
			t.Errorf("%s: lint takes an expression whose types do not fit: %v\n%s\n%s", which, seen.Blocked, file, stored)
		}
		count(&open, seen.Do == fsm.Commit)
	}
	return open
}

func count(n *int, is bool) {
	if is {
		*n++
	}
}
