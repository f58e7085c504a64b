package bench

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/phasegate/phasegate/test/support/harness"
)

// machine describes what the figures were taken on, for people.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindSubmatch(text); found != nil {
			model = string(found[1])
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // it is there on Linux, and harness needs that
	memory := "?"
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if found := regexp.MustCompile(`MemTotal:\s+(\d+) kB`).FindSubmatch(text); found != nil {
			kib, _ := strconv.Atoi(string(found[1])) // the pattern has digits only
			memory = strconv.Itoa(kib >> 20)
		}
	}
	return fmt.Sprintf("%d × %s, %s GiB, Linux %s, %s", runtime.NumCPU(), model, memory, strings.TrimSpace(string(kernel)), runtime.Version())
}

// loadNow is how many processes wanted to run during the last minute, on average.
func loadNow() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("read how busy the machine is: %w", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}

// managerCommit is the commit that bin/manager was built from.
func managerCommit() (string, error) {
	path, err := harness.Binary("manager")
	if err != nil {
		return "", err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read what bin/manager was built from: %w", err)
	}
	commit, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 8)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return commit + changed, nil
}
