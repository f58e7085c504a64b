package chart_test

import (
	"strings"
	"testing"
)

// What can be rendered and would not work is refused before anything is installed,
// with the value, what is wrong and what to do.
func TestRefused(t *testing.T) {
	const machine = "apiVersion: phasegate.dev/v1alpha1\\nkind: Machine\\nmetadata: {name: NAME}\\n"
	named := func(name string) string { return `"` + strings.Replace(machine, "NAME", name, 1) + `"` }
	cases := map[string]struct {
		why    string
		values string
		// says is in the error; without it the chart must render.
		says []string
		// apis that the cluster serves besides Kubernetes' own.
		apis []string
	}{
		"unknown value":         {why: "a typing error would be without effect", values: `{metrics: {sekure: true}}`, says: []string{"metrics", "sekure"}},
		"unknown in controller": {why: "the same, deeper", values: `{controllers: {mcpserver: {replica: 2}}}`, says: []string{"controllers/mcpserver", "replica"}},
		"unknown in variable":   {why: "the value would be missing", values: `{controllers: {mcpserver: {extraEnv: [{name: A, vaule: b}]}}}`, says: []string{"extraEnv", "vaule"}},
		"no controller":         {why: "the release would run nothing, and look installed", values: `{controllers: {datastoremigration: {enabled: false}, mcpserver: {enabled: false}}}`, says: []string{"controllers", "all are off", "helm uninstall"}},
		"cleanup of another":    {why: "only the migration cleans up", values: `{controllers: {mcpserver: {cleanup: {enabled: true}}}}`, says: []string{"controllers/mcpserver", "cleanup"}},
		"no number":             {why: "quotes in --set-string", values: `{controllers: {mcpserver: {replicas: "2"}}}`, says: []string{"replicas", "want integer"}},
		"no duration":           {why: "a number has no unit", values: `{leaderElection: {leaseDuration: 15}}`, says: []string{"leaseDuration"}},
		"no digest":             {why: "a tag in its place", values: `{image: {digest: latest}}`, says: []string{"image/digest"}},
		"no level":              {why: "as the manager says", values: `{logging: {level: warning}}`, says: []string{"logging/level"}},
		"no collector":          {why: "as the manager says", values: `{tracing: {endpoint: "otel:4318"}}`, says: []string{"tracing/endpoint"}},
		"old word for CRDs":     {why: "it would be without effect", values: `{crds: {enabled: false}}`, says: []string{"crds", "enabled"}},
		"no way with CRDs":      {why: "a typing error", values: `{crds: {install: Auto}}`, says: []string{"crds/install"}},
		"CRDs to be deleted":    {why: "only those that are surely ours", values: `{crds: {keep: false}}`, says: []string{"crds.keep", "crds.install=always"}},
		"global values":         {why: "Helm hands them to each chart of an umbrella", values: `{global: {registry: x}}`},

		"proxy":                  {why: "a typing error", values: `{proxy: toolHive}`, says: []string{"proxy"}},
		"proxy without image":    {why: "no pod would start", values: `{proxy: toolhive}`, says: []string{"proxy", "toolhiveProxyImage.repository"}},
		"proxy without version":  {why: "ours is none of ToolHive's", values: `{toolhiveProxyImage: {repository: x/y}}`, says: []string{"toolhiveProxyImage", "tag"}},
		"proxy with an image":    {why: "the image says which", values: `{toolhiveProxyImage: {repository: x/y, tag: v1}}`},
		"proxy of a digest":      {why: "one may say the version besides", values: `{toolhiveProxyImage: {repository: x/y, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000", version: v0.63.0}}`},
		"proxy of no version":    {why: "the manager would not start", values: `{toolhiveProxyImage: {repository: x/y, tag: latest, version: latest}}`, says: []string{"toolhiveProxyImage/version"}},
		"our proxy all the same": {why: "one value goes back", values: `{proxy: phasegate, toolhiveProxyImage: {repository: x/y}}`},

		"lease":             {why: "two could lead at a time", values: `{leaderElection: {renewDeadline: 15s}}`, says: []string{"leaderElection", "leaseDuration (15s) > renewDeadline (15s)"}},
		"lease in units":    {why: "1m is longer than 30s", values: `{leaderElection: {leaseDuration: 1m, renewDeadline: 30s, retryPeriod: 500ms}}`},
		"retry":             {why: "it would never be tried again", values: `{leaderElection: {retryPeriod: 10s}}`, says: []string{"retryPeriod (10s)"}},
		"two budgets":       {why: "Kubernetes refuses both", values: `{podDisruptionBudget: {minAvailable: 1, maxUnavailable: 1}}`, says: []string{"podDisruptionBudget", "minAvailable"}},
		"policy for nobody": {why: "who asks for a policy believes to have one", values: `{hostNetwork: true, networkPolicy: {enabled: true}}`, says: []string{"networkPolicy.enabled", "hostNetwork"}},

		"account without a name": {why: "`default` would be anybody's", values: `{controllers: {mcpserver: {serviceAccount: {create: false}}}}`, says: []string{"controllers.mcpserver.serviceAccount", "name"}},
		"account of two": {why: "each would have the rights of both",
			values: `{controllers: {mcpserver: {serviceAccount: {name: x}}, datastoremigration: {serviceAccount: {name: x}}}}`,
			says:   []string{"controllers.mcpserver.serviceAccount.name", "datastoremigration"}},

		"unknown machine": {why: "the override would be without effect", values: `{machines: {override: {datastore-migratoin: {}}}}`, says: []string{"machines.override.datastore-migratoin", "datastore-migration, mcpserver"}},
		"unknown phase":   {why: "the same", values: `{machines: {override: {mcpserver: {phases: {Raedy: {poll: 1s}}}}}}`, says: []string{"machines.override.mcpserver.phases.Raedy", "Pending, Updating, Ready"}},
		"unknown step":    {why: "the same", values: `{machines: {override: {mcpserver: {phases: {Ready: {steps: {Dance: {poll: 1s}}}}}}}}`, says: []string{"machines.override.mcpserver.phases.Ready.steps.Dance", "CheckSpec"}},
		"step of no steps": {why: "a terminal phase has none", values: `{machines: {override: {datastore-migration: {phases: {Complete: {steps: {Dance: {poll: 1s}}}}}}}}`,
			says: []string{"phases.Complete.steps.Dance"}},
		"other suffix":    {why: "the manager reads *.yaml only", values: `{machines: {files: {door.yml: "x: y"}}}`, says: []string{"machines.files.door.yml", ".yaml"}},
		"hidden":          {why: "the manager passes it over", values: `{machines: {files: {.door.yaml: "x: y"}}}`, says: []string{"machines.files..door.yaml", "dot"}},
		"no machine":      {why: "the manager would not start", values: `{machines: {files: {door.yaml: "a: b"}}}`, says: []string{"machines.files.door.yaml", "kind: Machine"}},
		"no YAML":         {why: "the same", values: `{machines: {files: {door.yaml: "a: ["}}}`, says: []string{"machines.files.door.yaml", "yaml"}},
		"file for nobody": {why: "no controller would run it", values: `{machines: {files: {door.yaml: ` + named("door") + `}}}`, says: []string{"machines.files.door.yaml", "controllers.custom.enabled=true"}},
		"one machine twice": {why: "the manager takes neither", values: `{controllers: {custom: {enabled: true}}, machines: {files: {a.yaml: ` + named("door") + `, b.yaml: ` + named("door") + `}}}`,
			says: []string{"machines.files.b.yaml", `"door"`, "a.yaml"}},
		"file and override": {why: "which of them would win?", values: `{machines: {override: {mcpserver: {defaults: {poll: 1s}}}, files: {a.yaml: ` + named("mcpserver") + `}}}`,
			says: []string{"machines.files.a.yaml", "machines.override"}},
		"custom without a file": {why: "it would do nothing", values: `{controllers: {custom: {enabled: true}}}`, says: []string{"controllers.custom.enabled", "machines.files"}},
		"replaced machine":      {why: "it needs no other controller", values: `{machines: {files: {mine.yaml: ` + named("mcpserver") + `}}}`},

		"kind twice":         {why: "the manager would not start", values: `{kinds: {extra: [{kind: IPPool, plural: ippools, scope: Cluster}]}}`, says: []string{"kinds", "IPPool", "kinds.file"}},
		"kinds of both":      {why: "which of them would win?", values: `{kinds: {file: "kind: KindRegistry", extra: [{kind: A, plural: as, scope: Cluster}]}}`, says: []string{"kinds", "extra", "file"}},
		"no registry":        {why: "the manager would not start", values: `{kinds: {file: "kind: Registry"}}`, says: []string{"kinds.file", "KindRegistry"}},
		"kinds without need": {why: "nobody would read them", values: `{controllers: {datastoremigration: {enabled: false}}, kinds: {extra: [{kind: A, plural: as, scope: Cluster}]}}`, says: []string{"kinds", "controllers.datastoremigration"}},

		"monitor without an operator": {why: "who asks for it believes to have it", values: `{metrics: {serviceMonitor: {enabled: true}}}`, says: []string{"metrics.serviceMonitor.enabled", monitoring, "--api-versions"}},
		"alerts without an operator":  {why: "the same", values: `{metrics: {prometheusRule: {enabled: true}}}`, says: []string{"metrics.prometheusRule.enabled", monitoring}},
		"alerts with one":             {why: "then they are made", values: `{metrics: {prometheusRule: {enabled: true}}}`, apis: []string{monitoring}},
		"monitor of nothing":          {why: "no metrics are served", values: `{metrics: {enabled: false, serviceMonitor: {enabled: true}}}`, apis: []string{monitoring}, says: []string{"metrics.serviceMonitor.enabled", "metrics.enabled=false"}},
		"certificate for nothing":     {why: "it would not be used", values: `{metrics: {secure: false, certSecret: x}}`, says: []string{"metrics.certSecret", "metrics.secure=false"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := renderV4(chartV4(t), values(t, c.values), c.apis...)
			if len(c.says) == 0 {
				if err != nil {
					t.Errorf("%v: %s", err, c.why)
				}
				return
			}
			if err == nil {
				t.Fatalf("it is rendered: %s", c.why)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q but:\n%v", part, err)
				}
			}
		})
	}
}
