package chart_test

import (
	"slices"
	"strings"
	"testing"
)

// Two releases with the same controller would drive the same objects. One under another name, after the first is gone,
// finds what that has left, and leaves nothing twice.
func TestTwoReleases(t *testing.T) {
	deployment := func(name, namespace, component string) cluster {
		c := newCluster()
		c["Deployment "+name] = map[string]any{"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{
			"app.kubernetes.io/part-of": "phasegate", "app.kubernetes.io/instance": name, "app.kubernetes.io/component": component}}}
		return c
	}
	guard := func(annotations map[string]any) cluster {
		c := newCluster()
		for _, name := range []string{"phasegate-deletion-guard", "phasegate-state-deletion-guard"} {
			c["ValidatingAdmissionPolicy "+name] = map[string]any{"metadata": map[string]any{"name": name, "annotations": annotations}}
		}
		return c
	}
	of := func(name, namespace string) map[string]any {
		return map[string]any{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}
	}
	both := []string{"phasegate-deletion-guard", "phasegate-state-deletion-guard"}
	cases := map[string]struct {
		why, values string
		cluster     cluster
		fails       []string
		guards      []string // deletion guards that are made
	}{
		"the first":                 {why: "nobody else is there", cluster: newCluster(), guards: both},
		"another name":              {why: "its guards have the same names", values: `{fullnameOverride: mine}`, cluster: newCluster(), guards: both},
		"an upgrade":                {why: "what we do not render any more, Helm deletes", cluster: guard(of(release, namespace)), guards: both},
		"itself":                    {why: "an upgrade finds its own Deployment", cluster: deployment(release, namespace, "datastoremigration"), guards: both},
		"after one under a name":    {why: "the guards that it has left do what ours would", cluster: guard(of("old", "old"))},
		"beside one":                {why: "both would drive the same migrations", cluster: deployment("old", "elsewhere", "datastoremigration"), fails: []string{"controllers.datastoremigration.enabled", "release old in namespace elsewhere", "uninstall"}},
		"beside one with the other": {why: "one for each controller is fine", values: `{controllers: {datastoremigration: {enabled: false}}}`, cluster: deployment("old", "elsewhere", "datastoremigration"), guards: both[1:]},
		"the same name elsewhere":   {why: "a release is a name and a namespace", cluster: deployment(release, "elsewhere", "mcpserver"), fails: []string{"controllers.mcpserver.enabled", "namespace elsewhere"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			given := c.values
			if given == "" {
				given = "{}"
			}
			out, err := renderOn(t, c.cluster, values(t, given), policies)
			if (err != nil) != (len(c.fails) > 0) {
				t.Fatalf("%v: %s", err, c.why)
			}
			for _, part := range c.fails {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q but:\n%v", part, err)
				}
			}
			if err != nil {
				return
			}
			var made []string
			for _, o := range out.objects(t) {
				if o.Kind == "ValidatingAdmissionPolicy" && strings.HasSuffix(o.Name, "-deletion-guard") {
					made = append(made, o.Name)
				}
			}
			if slices.Sort(made); !slices.Equal(made, c.guards) {
				t.Errorf("guards %q, want %q: %s", made, c.guards, c.why)
			}
		})
	}
}
