package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
)

// machineFile is the machine whose steps are measured.
const machineFile = "datastore-migration.yaml"

// stepTime is what one action took, over all times it was called.
type stepTime struct {
	action string
	took   time.Duration
	times  int
}

// stepTimes asks the manager's metrics about the steps of Migrating, in their order. Steps that had
// nothing to do are not among them.
func stepTimes(ctx context.Context, address string) ([]stepTime, error) {
	actions, err := migratingActions()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	var out []stepTime
	for _, action := range actions {
		times := sample(text, "phasegate_step_duration_seconds_count", action)
		if times > 0 {
			seconds := sample(text, "phasegate_step_duration_seconds_sum", action)
			out = append(out, stepTime{action, time.Duration(seconds * float64(time.Second)), int(times)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the manager's metrics have none of the steps %v:\n%s", actions, text)
	}
	return out, nil
}

func migratingActions() ([]string, error) {
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
		if phase.Name != "Migrating" {
			continue
		}
		for _, step := range phase.Steps {
			actions = append(actions, step.Action)
		}
	}
	return actions, nil
}

// sample finds the value of one line of the exposition format; 0 if it is not there.
func sample(text []byte, name, action string) float64 {
	line := regexp.MustCompile(`(?m)^` + name + `\{action="` + action + `",[^}]*\} (\S+)$`)
	found := line.FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0
	}
	return value
}

// peakMemory is the most resident memory that a process ever had, in bytes.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the manager's memory: %w", err)
	}
	found := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no VmHWM in /proc/%d/status", pid)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10, err
}
