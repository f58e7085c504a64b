package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

func simulateCommand(s streams) *cobra.Command {
	var machine string
	var crash bool
	cmd := &cobra.Command{
		Use:   "simulate SCENARIO...",
		Short: "Run scenarios without a cluster, and check expectations",
		Long: `Run scenario files (docs/simulate.md) with the real machine, made-up answers of actions and
guards, and no waiting. Prints what happened. A failed expectation is an error.

--crash repeats each scenario with a manager crash at every possible place, and fails if
one ends differently.

Exit codes: 0 all expectations hold, 1 one does not, 2 error.`,
		Example: `  kubectl phasegate simulate docs/examples/scenarios/happy-path.yaml
  kubectl phasegate simulate my/*.yaml --machine phases/datastore-migration.yaml --crash`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"yaml"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	output := formatFlag(cmd, "text", "json")
	cmd.Flags().StringVar(&machine, "machine", "", "machine instead of the scenario's, a file or a compiled-in name")
	cmd.Flags().BoolVar(&crash, "crash", false, "also crash the manager at every possible place")
	_ = cmd.RegisterFlagCompletionFunc("machine", completeCompiled) // the flag exists
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := output.check(); err != nil {
			return err
		}
		var results []*simulate.Result
		for _, file := range args {
			result, err := play(s, file, machine, crash)
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return report(s, output, results)
	}
	return cmd
}

// progressEvery is how often a long work says how far it is.
const progressEvery = 10 * time.Second

func play(s streams, file, machine string, crash bool) (*simulate.Result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scenario, diags := simulate.Load(file, data)
	if scenario == nil {
		return nil, findings(s, diags)
	}
	if machine == "" {
		machine = scenario.Machine
		if isPath(machine) && !filepath.IsAbs(machine) {
			machine = filepath.Join(filepath.Dir(file), machine)
		}
	}
	m, err := chooseMachine(s, machine)
	if err != nil {
		return nil, err
	}
	result, diags := scenario.Play(m)
	if result == nil {
		return nil, findings(s, diags)
	}
	if crash {
		next := time.Now().Add(progressEvery)
		crashes, failures := scenario.Crashed(m, func(crashes int) {
			if now := time.Now(); now.After(next) {
				say(s.err, "%s: %d crashes so far", file, crashes)
				next = now.Add(progressEvery)
			}
		})
		say(s.err, "%s: %d crashes, %d of them change the end", file, crashes, len(failures))
		result.Failures = append(result.Failures, failures...)
	}
	return result, nil
}

func findings(s streams, diags diag.Diagnostics) error {
	for _, d := range diags {
		say(s.err, "%s", d)
	}
	return errFindings
}

func report(s streams, output *format, results []*simulate.Result) error {
	err := show(s.out, output, results, func(results []*simulate.Result) string {
		var texts []string
		for _, r := range results {
			var text strings.Builder
			r.Write(&text)
			texts = append(texts, text.String())
		}
		return strings.Join(texts, "\n")
	})
	if err == nil && slices.ContainsFunc(results, func(r *simulate.Result) bool { return len(r.Failures) > 0 }) {
		return errFindings
	}
	return err
}
