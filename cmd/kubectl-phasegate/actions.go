package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/catalog"
)

func actionsCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actions [MACHINE]",
		Short: "List the actions, guards and roles for machine files",
		Long: `List the actions, guards and roles that a machine file may name, with their purpose, the
parameters for with:, and what they add to result.

MACHINE is a compiled-in machine with actions of its own; without it, the actions of every
machine are listed. -o yaml writes a file for lint --bindings.

Exit codes: 0 listed, 2 no such machine.`,
		Example: `  kubectl phasegate actions
  kubectl phasegate actions datastore-migration
  kubectl phasegate actions -o yaml > bindings.yaml`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return catalog.Names(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	output := formatFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name := "built-in"
		if len(args) == 1 {
			if name = args[0]; !catalog.Compiled(name) {
				return fmt.Errorf("machine %s has no actions of its own: name one of %s, or none", name, strings.Join(catalog.Names(), ", "))
			}
		}
		text, err := listActions(name, output)
		fmt.Fprint(s.out, text)
		return err
	}
	return cmd
}

func listActions(name string, output *format) (string, error) {
	b := catalog.BindingsOf(name)
	if output.value == "text" {
		return b.String(), nil
	}
	if err := output.check(); err != nil {
		return "", err
	}
	text, err := b.File(name)
	if err == nil && output.value == "json" {
		text, err = yaml.YAMLToJSON(text)
		text = append(text, '\n')
	}
	return string(text), err
}
