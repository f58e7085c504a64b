package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/supportbundle"
)

func supportBundleCommand(s streams) *cobra.Command {
	o, file := supportbundle.Options{}, ""
	cmd := &cobra.Command{
		Use:   "support-bundle [NAME]",
		Short: "Collect diagnostics for support, without secrets",
		Long: `Write a .tar.gz with Phasegate's objects, their status, MachineStates, events, the end of
the managers' logs, the shape of the CRDs, the APIService, Phasegate's admission policies,
check results and versions. Reads as you, and changes nothing.

No Secret is read. Values of environment variables, arguments and foreign annotations are
left out, and removed from logs and messages, like anything that looks like a token or
password. Of Calico's objects, it has counts and the names of those in conflict, hashed
with --redact-names. Review the file before you share it.

missing.json lists what you may not read.
Exit codes: 0 written; 1 written, but something is missing; 2 error.`,
		Example: `  kubectl phasegate support-bundle
  kubectl phasegate support-bundle to-v3 -f - --redact-names | tar tz`,
		Args: cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	cmd.ValidArgsFunction = completeMigrations(at)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, - for stdout; default: phasegate-TIME.tar.gz")
	cmd.Flags().BoolVar(&o.RedactNames, "redact-names", false, "hash the names of Calico's objects")
	cmd.Flags().StringVar(&o.CalicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, for the checks")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Config, err = at.rest(); err != nil {
			return err
		}
		if o.Client, _, err = at.connect(); err != nil {
			return err
		}
		if len(args) > 0 {
			k, err := at.machines(cmd.Context(), s, nil)
			if err != nil {
				return err
			}
			_, dm, err := k.migration(cmd.Context(), s, args)
			if err != nil {
				return err
			}
			o.Migration = dm.Name
		}
		collected, err := supportbundle.Collect(cmd.Context(), o)
		if err != nil {
			return err
		}
		return writeBundle(s, collected, file, time.Now())
	}
	return cmd
}

// writeBundle tells where it is, and what is not in it.
func writeBundle(s streams, b *supportbundle.Bundle, file string, now time.Time) error {
	dir := "phasegate-" + now.UTC().Format("20060102T150405Z")
	if file == "" {
		file = dir + ".tar.gz"
	}
	if file == "-" {
		if err := b.Write(behind(s.out), dir, now); err != nil {
			return err
		}
	} else if err := bundleFile(b, file, dir, now); err != nil {
		return fmt.Errorf("write %s: %w: choose another file with -f", file, err)
	} else {
		say(s.out, "%s: %d files", file, len(b.Files))
	}
	if len(b.Missing) > 0 {
		say(s.err, "missing, see missing.json:")
		for _, missing := range b.Missing {
			say(s.err, "  %s", missing)
		}
		return errFindings
	}
	return nil
}

func bundleFile(b *supportbundle.Bundle, file, dir string, now time.Time) error {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := b.Write(to, dir, now); err != nil {
		_ = to.Close() // the first error tells
		return err
	}
	return to.Close()
}
