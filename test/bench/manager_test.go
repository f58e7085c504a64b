package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/test/support/harness"
)

// machineFile is the machine whose steps are measured.
const machineFile = "datastore-migration.yaml"

// stepTime is what one action took, over all times it was called.
type stepTime struct {
	action string
	took   time.Duration
	times  int
}

// stepTimes asks the manager's metrics about the steps up to Converged, in their order. Steps that had
// nothing to do are not among them.
func stepTimes(ctx context.Context, address string) ([]stepTime, error) {
	actions, err := timedActions()
	if err != nil {
		return nil, err
	}
	shown, err := harness.Scrape(ctx, http.DefaultClient, "http://"+address)
	if err != nil {
		return nil, err
	}
	var out []stepTime
	for _, action := range actions {
		for _, m := range shown.With("phasegate_step_duration_seconds", "action", action) {
			seconds, times := m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()
			out = append(out, stepTime{action, time.Duration(seconds * float64(time.Second)), int(times)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the manager's metrics have none of the steps %v", actions)
	}
	return out, nil
}

func timedActions() ([]string, error) {
	data, err := phases.Files.ReadFile(machineFile)
	if err != nil {
		return nil, err
	}
	machine, diags := fsm.Load(machineFile, data)
	if err := diags.Err(); err != nil {
		return nil, err
	}
	var actions []string
	for _, phase := range machine.Spec.Phases {
		if phase.Name != "Pending" && phase.Name != "Migrating" {
			continue
		}
		for _, step := range phase.Steps {
			if !slices.Contains(actions, step.Action) {
				actions = append(actions, step.Action)
			}
		}
	}
	return actions, nil
}

// memoryOf is a line of /proc/PID/status, in bytes.
func memoryOf(pid int, line string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	found := regexp.MustCompile(`(?m)^` + line + `:\s+(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no %s in /proc/%d/status", line, pid)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}
