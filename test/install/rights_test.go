package install

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/support/audit"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// sample is how many rights of each role of an account are taken away in turn; all of them if RIGHTS=all.
const sample = 1

func account(controller string) string { return release + "-" + controller }

func userOf(controller string) string {
	return "system:serviceaccount:" + system + ":" + account(controller)
}

// accounts: what the API server says that each may do is what was read and agreed to.
func accounts(t *testing.T, w *world) {
	for _, controller := range []string{migrating, serving} {
		said, err := w.run(t, w.tokenOf(t, controller), filepath.Join(w.root, "bin", "tools", "kubectl"), "auth", "can-i", "--list", "--no-headers", "-n", system)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		got := strings.Join(inOrder(said), "\n") + "\n"
		golden := filepath.Join("testdata", "can-i-"+controller+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("what %s may do has changed; if it is right, run the test with -update (-want +got):\n%s", account(controller), diff)
		}
	}
}

// givenToAll is what Kubernetes grants every service account, from 1.37 on.
const givenToAll = "clustertrustbundles.certificates.k8s.io [] [] [get list watch]"

// inOrder sorts the lines of a list of rights, without givenToAll, and the verbs that each ends with.
func inOrder(list string) []string {
	var sorted []string
	for line := range strings.Lines(list) {
		line = strings.Join(strings.Fields(line), " ")
		at := strings.LastIndex(line, "[") + 1
		verbs := strings.Fields(strings.TrimSuffix(line[at:], "]"))
		slices.Sort(verbs)
		if line = line[:at] + strings.Join(verbs, " ") + "]"; line != givenToAll {
			sorted = append(sorted, line)
		}
	}
	slices.Sort(sorted)
	return sorted
}

// tokenOf writes a kubeconfig with a token of the account of a controller.
func (w *world) tokenOf(t *testing.T, controller string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := w.WriteKubeconfig(t.Context(), path, types.NamespacedName{Namespace: system, Name: account(controller)}, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// role reads a ClusterRole of the release.
func (w *world) role(t *testing.T, name string) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	w.read(t, types.NamespacedName{Name: name}, role)
	return role
}

func (w *world) read(t *testing.T, name types.NamespacedName, into client.Object) {
	t.Helper()
	if err := w.Client.Get(t.Context(), name, into); err != nil {
		t.Fatal(err)
	}
}

// grant is an object that gives rights to an account.
type grant struct {
	client.Object
	rules *[]rbacv1.PolicyRule
}

func grantOf(role *rbacv1.ClusterRole) grant { return grant{role, &role.Rules} }

// grants are all that the account of a controller has of the release.
func (w *world) grants(t *testing.T, controller string) []grant {
	t.Helper()
	election := &rbacv1.Role{}
	w.read(t, types.NamespacedName{Namespace: system, Name: account(controller) + "-leader-election"}, election)
	all := []grant{grantOf(w.role(t, account(controller))), grantOf(w.role(t, release+"-metrics-auth")), {election, &election.Rules}}
	if controller == migrating {
		backup := &rbacv1.Role{}
		w.read(t, types.NamespacedName{Namespace: setup.CalicoNamespace, Name: account(controller) + "-backup"}, backup)
		servers := &rbacv1.Role{}
		w.read(t, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: account(controller) + "-apiservers"}, servers)
		all = append(all, grant{servers, &servers.Rules}, grantOf(w.role(t, account(controller)+"-cleanup")), grantOf(w.role(t, account(controller)+"-copyahead")),
			grantOf(w.role(t, account(controller)+"-dependents")), grant{backup, &backup.Rules})
	}
	return all
}

// without takes a right away from an account until the function that it returns is called, and
// waits both times until the API server knows. Who has no right to everything is refused many things, none of
// which has its name: all that is refused meanwhile is for this.
func (w *world) without(t *testing.T, controller string, from grant, taken rbac.Need) (restore func()) {
	t.Helper()
	before, begin := *from.rules, time.Now()
	*from.rules = rbac.Merge(slices.DeleteFunc(rbac.Flatten("", before...), func(n rbac.Need) bool { return n.String() == taken.String() }))
	if err := w.Client.Update(t.Context(), from.Object); err != nil {
		t.Fatal(err)
	}
	w.awaitMay(t, controller, from, taken, false)
	w.taken = append(w.taken, taken)
	return func() {
		t.Helper()
		*from.rules = before
		if err := w.Client.Update(t.Context(), from.Object); err != nil {
			t.Fatal(err)
		}
		w.awaitMay(t, controller, from, taken, true)
		w.deprived = append(w.deprived, span{begin, time.Now()})
		if taken.Resource == "*" {
			w.excused = append(w.excused, span{begin, time.Now()})
		}
	}
}

// awaitMay waits until the API server says that an account may do something, or may not.
func (w *world) awaitMay(t *testing.T, controller string, from grant, n rbac.Need, may bool) {
	t.Helper()
	spec := authorizationv1.SubjectAccessReviewSpec{User: userOf(controller)}
	if resource, subresource, _ := strings.Cut(n.Resource, "/"); n.URL == "" {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: n.Verb, Group: n.Group, Resource: resource, Subresource: subresource, Name: n.Name, Namespace: from.GetNamespace(),
		}
	} else {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: n.Verb, Path: n.URL}
	}
	harness.Eventually(t, fmt.Sprintf("%s may %s: %t", account(controller), n, may), func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := w.Client.Create(t.Context(), review); err != nil {
			return err
		}
		if review.Status.Allowed != may {
			return errors.New(review.Status.Reason)
		}
		return nil
	})
}

// missingRights takes rights away in turn: the check of the account names exactly the one that is missing.
// Meanwhile the cluster is one where nobody has a right for being somebody.
func missingRights(t *testing.T, w *world) {
	basic := &rbacv1.ClusterRoleBinding{}
	if err := w.Client.Get(t.Context(), types.NamespacedName{Name: "system:basic-user"}, basic); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Delete(t.Context(), basic); err != nil {
		t.Fatal(err)
	}
	defer func() {
		basic.ResourceVersion, basic.UID = "", ""
		if err := w.Client.Create(t.Context(), basic); err != nil {
			t.Error(err)
		}
	}()
	for _, controller := range []string{migrating, serving} {
		kubeconfig := w.tokenOf(t, controller)
		if said, err := w.check(t, controller, kubeconfig); err != nil {
			t.Fatalf("the check of %s fails with all rights: %v\n%s", account(controller), err, said)
		}
		for _, from := range w.grants(t, controller) {
			picked := some(t, from.GetName(), slices.DeleteFunc(rbac.Flatten("", *from.rules...), func(n rbac.Need) bool {
				return w.givenTwice(t, controller, from, n)
			}))
			for _, taken := range picked {
				restore := w.without(t, controller, from, taken)
				said, err := w.check(t, controller, kubeconfig)
				restore()
				// Without the right to clean up, or to copy ahead, a migration can be made all the same.
				failed := !slices.ContainsFunc([]string{"-cleanup", "-backup", "-copyahead"}, func(end string) bool { return strings.HasSuffix(from.GetName(), end) })
				missing := missingIn(said)
				others := slices.DeleteFunc(slices.Clone(missing), func(m string) bool {
					return m == taken.String() || strings.HasPrefix(m, taken.String()+" ") // the same, of one object
				})
				if (err != nil) != failed || !slices.Contains(missing, taken.String()) || len(others) > 0 {
					t.Errorf("without the right to %s, the check of %s ends with %v and names %q: %.2000s", taken, account(controller), err, missing, said)
				}
			}
		}
	}
}

// givenTwice tells that another role of the cluster gives the account the same right, or a wider one:
// taken away from one of them, it would not be missed.
func (w *world) givenTwice(t *testing.T, controller string, from grant, n rbac.Need) bool {
	t.Helper()
	others := slices.DeleteFunc(w.grantedInCluster(t, controller), func(o rbac.Need) bool {
		return slices.Contains(o.For, "ClusterRole "+from.GetName())
	})
	return slices.ContainsFunc(others, func(o rbac.Need) bool {
		return o.Verb == n.Verb && (o.Group == "*" || o.Group == n.Group) && (o.Resource == "*" || o.Resource == n.Resource) && (o.Name == "" || o.Name == n.Name)
	})
}

// some are all of the rights, or a sample of them that may be repeated.
func some(t *testing.T, from string, all []rbac.Need) []rbac.Need {
	t.Helper()
	if os.Getenv("RIGHTS") == "all" {
		t.Logf("%s: each of %d rights", from, len(all))
		return all
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("RIGHTS"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RIGHTS is neither all nor a seed: %v", err)
		}
	}
	t.Logf("%s: %d of %d rights, the same again with RIGHTS=%d", from, min(sample, len(all)), len(all), seed)
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))
	var picked []rbac.Need
	for _, i := range order[:min(sample, len(all))] {
		picked = append(picked, all[i])
	}
	return picked
}

// missingInPreflight: who is told nothing by helm is told by the migration.
func missingInPreflight(t *testing.T, w *world) {
	taken := rbac.Need{Group: "apiregistration.k8s.io", Resource: "apiservices", Name: "v3.projectcalico.org", Verb: "patch"}
	restore := w.without(t, migrating, grantOf(w.role(t, account(migrating))), taken)
	w.kubectl(t, "apply", "-f", "testdata/migration.yaml")
	w.awaitMessage(t, taken.String())
	restore()
	w.goOnAlone(t)
	w.awaitPhase(t, inConflict)
	w.kubectl(t, "delete", "-f", "testdata/migration.yaml", "--timeout=3m")
}

// unusedRights: every single right of the roles was needed somewhere in the story.
func unusedRights(t *testing.T, w *world) {
	var requests map[string]audit.Requests
	harness.Eventually(t, "the audit log, which grows, to end with a whole line", func() (err error) {
		requests, err = audit.ReadFile(w.AuditLog, w.isExcused)
		return err
	})
	for _, controller := range []string{migrating, serving} {
		seen := requests[userOf(controller)]
		used := slices.Concat(seen.Allowed, w.handedOn[controller])
		granted := w.granted(t, controller)
		unused := slices.DeleteFunc(audit.Unused(granted, used), func(n rbac.Need) bool {
			return exceptions[n.String()] != "" || reads(n) || nudges(n) || inTier(n) || inFinalizers(n)
		})
		if len(unused) > 0 {
			t.Errorf("%s has never needed the right to\n%s", account(controller), lines(unused))
		}
		if refused := slices.DeleteFunc(seen.Denied, w.withReason); len(refused) > 0 {
			t.Errorf("%s was refused to\n%s", account(controller), lines(refused))
		}
		t.Logf("%s: %d rights, %d of them unused", account(controller), len(granted), len(unused))
	}
}

// withReason says that the right was taken away, be it as the one to all objects of a resource.
func (w *world) withReason(n rbac.Need) bool {
	n.Namespace = ""
	ofAll := n
	ofAll.Name = ""
	return slices.ContainsFunc(w.taken, func(taken rbac.Need) bool {
		return taken.String() == n.String() || taken.String() == ofAll.String()
	})
}

func TestWithReason(t *testing.T) {
	need := func(verb, name, namespace string) rbac.Need {
		return rbac.Need{Group: "g", Resource: "pools", Verb: verb, Name: name, Namespace: namespace}
	}
	cases := map[string]struct {
		why            string
		taken, refused rbac.Need
		want           bool
	}{
		"the same":         {"it was taken away", need("get", "a", ""), need("get", "a", ""), true},
		"in a namespace":   {"a role of the cluster does not say in which", need("list", "", ""), need("list", "", "ns"), true},
		"one of all":       {"a request has a name, and the right to all of them none", need("get", "", ""), need("get", "a", ""), true},
		"another verb":     {"it was never taken away", need("list", "", ""), need("get", "a", ""), false},
		"another name":     {"it was never taken away", need("get", "a", ""), need("get", "b", ""), false},
		"all, not the one": {"it was never taken away", need("list", "a", ""), need("list", "", ""), false},
	}
	for name, c := range cases {
		if got := (&world{taken: []rbac.Need{c.taken}}).withReason(c.refused); got != c.want {
			t.Errorf("%s: %t, want %t: %s", name, got, c.want, c.why)
		}
	}
}

// lines is one for each right, and who gave it.
func lines(needs []rbac.Need) string {
	var all []string
	for _, n := range needs {
		all = append(all, strings.TrimSuffix(n.String()+", of "+strings.Join(n.For, ", "), ", of "))
	}
	return strings.Join(all, "\n")
}

// ours says that a role is bound to the account of a controller.
func ours(controller string) func(rbacv1.Subject) bool {
	return func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == system && s.Name == account(controller)
	}
}

// granted are the rights that all roles of an account give, for the names of the roles.
func (w *world) granted(t *testing.T, controller string) []rbac.Need {
	t.Helper()
	all := w.grantedInCluster(t, controller)
	local := &rbacv1.RoleBindingList{}
	if err := w.Client.List(t.Context(), local); err != nil {
		t.Fatal(err)
	}
	for _, b := range local.Items {
		if slices.ContainsFunc(b.Subjects, ours(controller)) {
			role := &rbacv1.Role{}
			w.read(t, types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}, role)
			all = append(all, rbac.Flatten("Role "+role.Name, role.Rules...)...)
		}
	}
	return rbac.Union(all)
}

func (w *world) grantedInCluster(t *testing.T, controller string) (all []rbac.Need) {
	t.Helper()
	cluster := &rbacv1.ClusterRoleBindingList{}
	if err := w.Client.List(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	for _, b := range cluster.Items {
		if slices.ContainsFunc(b.Subjects, ours(controller)) {
			all = append(all, rbac.Flatten("ClusterRole "+b.RoleRef.Name, w.role(t, b.RoleRef.Name).Rules...)...)
		}
	}
	return all
}
