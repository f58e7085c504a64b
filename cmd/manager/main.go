// Command manager runs phasegate's controllers against a cluster. It only reads
// flags and wires; the work is in package controllers.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/phasegate/phasegate/cmd/internal/release"
	_ "github.com/phasegate/phasegate/cmd/internal/roots"
)

var version = release.Current().Version

func main() {
	paceCollector()
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(exitCode(err))
	}
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run phasegate's controllers",
		Long: `Run phasegate's controllers against a cluster.

The machines are compiled in. A file in --phases-dir replaces the machine of the same name,
or adds a machine for another kind. All files are checked before anything starts: a finding
(file:line:column: code: what, fix) ends the program with exit code 1.

The directory is checked every second. Changes take effect without a restart. A file with a
finding is refused, and the last valid machine stays in force: the log, the metric
phasegate_machine_refused, and Events of the objects and of the manager's pod report it.

SIGTERM ends the program: running writes are finished or abandoned, the lease is released,
and the exit code is 0. A second signal ends it at once.`,
		Example: `  manager --kubeconfig .cluster/kubeconfig
  manager --phases-dir ./phases --calico-namespace kube-system`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(checkCommand(o))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

const (
	// gcHeap is what the heap may grow to before it is collected, in bytes: with GOGC alone, the collections of a
	// small heap would be a third of the manager's CPU, on the cores of the API server that it waits for.
	gcHeap = 80 << 20
	// gcLeast is how much is taken to be alive at least, in bytes, so that GOGC is never above 150. What is set after
	// a collection takes effect when its sweep comes by, which may be half of the way to the next one: what leads
	// 4 MiB to 80 would lead 20 to 400 meanwhile.
	gcLeast = 32 << 20
	// gcPercent is GOGC where that lets the heap grow further, a quarter of Go's own: what a migration keeps in memory
	// grows with the number of objects, and the peak is to be small.
	gcPercent = 25
)

// paceCollector sets GOGC by what is alive after each collection, unless the environment has it. GOMEMLIMIT
// stays in force.
func paceCollector() {
	if os.Getenv("GOGC") == "" {
		pace()
	}
}

func pace() {
	debug.SetGCPercent(percentFor(aliveBytes()))
	runtime.AddCleanup(&collected{}, func(struct{}) { pace() }, struct{}{}) // after the next collection
}

// collected has a pointer, and so is never allocated together with something that lives longer.
type collected struct{ _ *collected }

func percentFor(alive uint64) int {
	alive = min(max(alive, gcLeast), gcHeap)
	return int(max(gcPercent, 100*(gcHeap-alive)/alive))
}

func aliveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
