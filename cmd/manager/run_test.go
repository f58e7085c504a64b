package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/phasegate/phasegate/fsm/fsmtest"
)

// No case here has a cluster: whatever is wrong with the arguments must be said
// before one is looked for.
func TestRunRefuses(t *testing.T) {
	dir := directory(t, map[string]string{
		"kinds.yaml": "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: k}\nspec: {kinds: [{kind: Tier, colour: red}]}\n",
		"phases":     "", "kubeconfig": "not a kubeconfig",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	cases := map[string]struct {
		why  string
		args []string
		want []string
	}{
		"unknown controller":   {why: "a misspelt one would never run", args: []string{"--controllers=datastoremigration,mcpservers"}, want: []string{"--controllers", `"mcpservers"`, "[datastoremigration mcpserver custom]"}},
		"no controller":        {why: "a manager that does nothing looks like one that works", args: []string{"--controllers="}, want: []string{"--controllers", "[datastoremigration mcpserver custom]"}},
		"no lease":             {why: "two managers would lead", args: []string{"--leader-elect-lease-name="}, want: []string{"--leader-elect-lease-name", "name the lease"}},
		"no lease namespace":   {why: "found out only after the cluster was asked, otherwise", args: []string{"--leader-elect"}, want: []string{"--leader-elect-namespace", "outside of a pod"}},
		"short lease":          {why: "two would lead for a while", args: []string{"--leader-elect-lease-duration=10s"}, want: []string{"--leader-elect-lease-duration", "--leader-elect-renew-deadline (10s)"}},
		"short deadline":       {why: "one lost request would end the leader", args: []string{"--leader-elect-renew-deadline=2400ms"}, want: []string{"--leader-elect-renew-deadline", "1.2 times", "(2s)"}},
		"no retry period":      {why: "it would ask without a pause", args: []string{"--leader-elect-retry-period=0s"}, want: []string{"--leader-elect-retry-period", "1s or more"}},
		"metrics nowhere":      {why: "a port alone is no address", args: []string{"--metrics-bind-address=8080"}, want: []string{"--metrics-bind-address", ":PORT"}},
		"no certificate":       {why: "a self-signed one is not what was asked for", args: []string{"--metrics-cert-dir", at("phases")}, want: []string{"--metrics-cert-dir", "tls.crt", "put tls.crt and tls.key there"}},
		"certificate for http": {why: "somebody believes that metrics are encrypted", args: []string{"--metrics-cert-dir", at("phases"), "--metrics-secure=false"}, want: []string{"--metrics-cert-dir", "--metrics-secure=false"}},
		"probes nowhere":       {why: "a port alone is no address", args: []string{"--health-probe-bind-address=8081"}, want: []string{"--health-probe-bind-address", ":PORT"}},
		"no worker":            {why: "nothing would happen", args: []string{"--workers=0"}, want: []string{"--workers", "1 or more"}},
		"no external call":     {why: "it would wait for ever", args: []string{"--external-calls=0"}, want: []string{"--external-calls", "1 or more"}},
		"no request":           {why: "it would wait for ever", args: []string{"--max-requests-in-flight=0"}, want: []string{"--max-requests-in-flight", "1 or more"}},
		"no time to end":       {why: "every write would be abandoned", args: []string{"--shutdown-timeout=0s"}, want: []string{"--shutdown-timeout", "1s or more"}},
		"unknown format":       {why: "log readers depend on it", args: []string{"--log-format=yaml"}, want: []string{"--log-format", `"yaml"`, "json or text"}},
		"unknown level":        {why: "nothing would be logged, or everything", args: []string{"--log-level=warning"}, want: []string{"--log-level", `"warning"`, "error, info, debug"}},
		"deep level":           {why: "zap's levels wrap around", args: []string{"--log-level=128"}, want: []string{"--log-level", `"128"`}},
		"no collector":         {why: "the exporter takes a path alone, and says nothing", args: []string{"--tracing-endpoint=otel:4318"}, want: []string{"--tracing-endpoint", "http://HOST:4318"}},
		"no ratio":             {why: "a percentage is a likely mistake", args: []string{"--tracing-sample-ratio=10"}, want: []string{"--tracing-sample-ratio", "from 0 to 1"}},
		"no kinds file":        {why: "the compiled-in list is not what was asked for", args: []string{"--kinds-file", at("none.yaml")}, want: []string{"--kinds-file", "none.yaml"}},
		"broken kinds file":    {why: "an unknown field may be a misspelt one", args: []string{"--kinds-file", at("kinds.yaml")}, want: []string{"kinds.yaml:4:29: PG000", "colour"}},
		"no resources":         {why: "a limit under another name would be none", args: []string{`--proxy-resources={"limit":{"cpu":"1"}}`}, want: []string{"--proxy-resources", `unknown field "limit"`}},
		"no network":           {why: "a typo must not open or close what nobody meant", args: []string{"--allow-private-http=10.1.0.0"}, want: []string{"--allow-private-http", "10.1.0.0/16"}},
		"no phases directory":  {why: "the compiled-in machine is not what was asked for", args: []string{"--phases-dir", at("none")}, want: []string{"--phases-dir", "none"}},
		"no kubeconfig":        {why: "only after the files are known to be sound", args: []string{"--phases-dir", at("phases"), "--kubeconfig", at("kubeconfig")}, want: []string{"find a cluster", "--kubeconfig"}},
		"unknown flag":         {why: "flags are not guessed", args: []string{"--kubeconf=x"}, want: []string{"unknown flag: --kubeconf"}},
		"an argument":          {why: "there is no verb to give", args: []string{"start"}, want: []string{"start"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, c.args...)
			checkError(t, err, dir, c.want)
		})
	}
}

func TestHelp(t *testing.T) {
	out, err := execute(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	fsmtest.Golden(t, "testdata/help.txt", out)
}

// execute is what the command prints, and how it ends.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}
