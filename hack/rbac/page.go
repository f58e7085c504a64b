package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/controllers/rbac"
)

// listed is how many names of a list are shown: the rest is in the chart's files.
const listed = 5

const intro = "# Rights\n\n" +
	"<!-- Made by hack/rbac (make generate). -->\n\n" +
	"The rights of each account of the chart, and the steps, guards, watches or controllers that need them. Nothing else is granted, except rights to the lease and to metrics, which are in the chart's templates. The rules are in `charts/phasegate/files/rbac`.\n\n" +
	"To list the missing rights of an account:\n\n" +
	"```sh\n" +
	"kubectl phasegate check --as system:serviceaccount:phasegate-system:phasegate-datastoremigration --controllers datastoremigration\n" +
	"```\n\n" +
	"If a machine of your own needs more, add rules under `controllers.<name>.extraRules`.\n"

// page tells each right and who needs it.
func page(roles []role) string {
	var out strings.Builder
	out.WriteString(intro)
	for _, r := range roles {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| may | of | named | needed by |\n|---|---|---|---|\n", r.name, r.doc)
		for _, l := range lines(r.needs) {
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", strings.Join(l.Verbs, ", "), of(l), show(l.ResourceNames, ""), l.who)
		}
	}
	return out.String()
}

// line is a rule for what the same ones need.
type line struct {
	rbacv1.PolicyRule
	who string
}

func lines(needs []rbac.Need) []line {
	of := map[string][]rbac.Need{}
	for _, n := range needs {
		who := strings.Join(n.For, ", ")
		of[who] = append(of[who], n)
	}
	var all []line
	for who, theirs := range of {
		for _, rule := range rbac.Merge(theirs) {
			all = append(all, line{rule, who})
		}
	}
	slices.SortFunc(all, func(a, b line) int {
		return cmp.Or(slices.Compare(a.NonResourceURLs, b.NonResourceURLs), slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.ResourceNames, b.ResourceNames), slices.Compare(a.Verbs, b.Verbs), cmp.Compare(a.who, b.who))
	})
	return all
}

// of is what a line is about.
func of(l line) string {
	if len(l.NonResourceURLs) > 0 {
		return show(l.NonResourceURLs, "") + " of the API server"
	}
	return show(l.Resources, l.APIGroups[0])
}

// show is a list of names in a group, a long one shortened.
func show(names []string, group string) string {
	if len(names) == 0 {
		return "any"
	}
	text := "`" + strings.Join(names, "`, `") + "`"
	if n := len(names); n > listed {
		text = fmt.Sprintf("`%s` … `%s`, %d in all", names[0], names[n-1], n)
	}
	if group != "" {
		text += " of " + group
	}
	return text
}
