package copier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// Two v1 objects that become one v3 object are a person's to part, whenever the second one comes: a copy of both would
// change with each round, and v3 would lack one of them.
func TestACollisionIsRejectedInEachRound(t *testing.T) {
	const (
		plain   = "metadata: {name: foo}\nspec: {selector: all()}"
		renamed = "metadata: {name: default.foo, annotations: {projectcalico.org/metadata: '{}'}}\nspec: {tier: default, selector: has(a)}"
		same    = "metadata: {name: default.foo, annotations: {projectcalico.org/metadata: '{}'}}\nspec: {selector: all()}"
		far     = "metadata: {name: other, annotations: {projectcalico.org/metadata: '{\"name\":\"foo\"}'}}\nspec: {selector: has(b)}"
	)
	for name, tc := range map[string]struct {
		why    string
		first  string
		others []string // that come once the first is copied; without the first, all come at once
		cache  *EqualityCache
	}{
		"both are new":                     {why: "neither is in v3 yet", others: []string{plain, renamed}, cache: NewEqualityCache()},
		"the first is proved":              {why: "nobody reads it again", first: plain, others: []string{renamed}, cache: NewEqualityCache()},
		"the first is proved, and renamed": {why: "the second has the name in v1 that both have in v3", first: renamed, others: []string{plain}, cache: NewEqualityCache()},
		"the same content":                 {why: "v3 has an object fewer than v1 all the same", first: plain, others: []string{same}, cache: NewEqualityCache()},
		"nothing is remembered":            {why: "a manager was restarted", first: plain, others: []string{renamed}},
		"neither has the name":             {why: "both are called otherwise in v1", first: renamed, others: []string{far}, cache: NewEqualityCache()},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.v1("GlobalNetworkPolicy", "metadata: {name: bystander}\nspec: {selector: all()}")
			c := w.copier(interceptor.Funcs{}, WithEqualityCache(tc.cache))
			if tc.first != "" {
				w.v1("GlobalNetworkPolicy", tc.first)
				w.mustCopy(c)
			}
			var last string
			for _, text := range tc.others {
				last = w.v1("GlobalNetworkPolicy", text).GetName()
			}
			for round := range 3 {
				changed := w.rejects(c, "NameCollision foo")
				if tc.first != "" && round > 0 && tc.cache != nil && changed != 0 {
					t.Errorf("round %d has written %d objects: the copy of the first is what it was", round, changed)
				}
				if t.Failed() {
					t.Fatalf("in round %d: %s", round, tc.why)
				}
			}
			w.must(w.client.Delete(t.Context(), w.get(kindOf(t, "GlobalNetworkPolicy").V1GVK(), last)))
			if result := w.mustCopy(c); len(result.Rejected) > 0 {
				t.Errorf("one is left, and rejected: %v", result.Rejected)
			}
			w.wantVerified(c)
		})
	}
}

// rejects copies, verifies and plans, all of which name one collision, and answers how many objects were changed.
func (w *world) rejects(c *Copier, collision string) int64 {
	w.T.Helper()
	result := w.mustCopy(c)
	if diff := cmp.Diff([]string{collision}, collisions(result.Rejected)); diff != "" {
		w.T.Errorf("a copy rejects (-want +got):\n%s", diff)
	}
	v := w.mustVerify(c)
	if diff := cmp.Diff([]string{collision}, collisions(v.Missing)); diff != "" || v.OK() {
		w.T.Errorf("verify, equal: %t (-want +got):\n%s", v.OK(), diff)
	}
	if plan, err := c.Plan(w.T.Context(), false); err != nil || len(plan.Problems) != 1 {
		w.T.Errorf("plan: %v, %v; want the collision", plan.Problems, err)
	}
	return result.Changed()
}

// collisions are reason and v3 name, where the problem names a v1 object.
func collisions(problems []resources.Problem) (all []string) {
	for _, p := range problems {
		name := p.Name
		if i := strings.Index(p.Message, `would both become "`); i >= 0 {
			name = strings.Split(p.Message[i:], `"`)[1]
		}
		all = append(all, fmt.Sprint(p.Reason, " ", name))
	}
	return all
}
