package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1/schema"
)

var schemas = map[string][]byte{"machine": schema.Machine, "kindregistry": schema.KindRegistry}

func schemaCommand(s streams) *cobra.Command {
	kinds := slices.Sorted(maps.Keys(schemas))
	return &cobra.Command{
		Use:   "schema machine|kindregistry",
		Short: "Print a JSON Schema for your editor",
		Long: `Print the JSON Schema (draft 2020-12) of machine files or kind registries.

An editor with a YAML language server completes and checks a file whose first line has:

  # yaml-language-server: $schema=machine.schema.json

The schema covers fields, types and values; kubectl phasegate lint checks how phases,
actions and expressions fit together.

Exit codes: 0 printed, 2 no such kind of file.`,
		Example: `  kubectl phasegate schema machine > machine.schema.json
  kubectl phasegate schema kindregistry > kindregistry.schema.json`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: kinds,
		RunE: func(_ *cobra.Command, args []string) error {
			text, ok := schemas[args[0]]
			if !ok {
				return fmt.Errorf("%q is no kind of file: write one of %v", args[0], kinds)
			}
			_, err := s.out.Write(text)
			return err
		},
	}
}
