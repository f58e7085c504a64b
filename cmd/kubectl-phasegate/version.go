package main

import (
	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/internal/release"
)

func versionCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version; -o json adds the commit, Go version and platform, for bug reports.\n\nExit codes: 0 printed, 2 usage.",
		Example: "  kubectl phasegate version -o json",
		Args:    cobra.NoArgs,
	}
	output := formatFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		return show(s.out, output, release.Current(), func(release.Info) string { return version + "\n" })
	}
	return cmd
}
