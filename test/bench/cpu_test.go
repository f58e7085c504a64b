package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is USER_HZ, in which Linux counts the time of processes for everybody.
const clockTick = 10 * time.Millisecond

// cpuTimes is what programs have computed, by their names.
type cpuTimes map[string]time.Duration

// cpuNow is what this process and all processes with dir on their command line
// have computed so far: the servers of the cluster in dir, and the manager. Wall
// time is for an idle machine; on a shared one this tells who did the work.
func cpuNow(dir string) cpuTimes {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // it cannot fail with these arguments
	all := cpuTimes{"bench": time.Duration(own.Utime.Nano() + own.Stime.Nano())}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, p := range processes {
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue // it has ended, or is none of ours
		}
		if stat, err := os.ReadFile(filepath.Join(p, "stat")); err == nil {
			program, _, _ := bytes.Cut(line, []byte{0})
			all[filepath.Base(string(program))] += ticksOf(string(stat))
		}
	}
	return all
}

// since is what was computed after before.
func (c cpuTimes) since(before cpuTimes) cpuTimes {
	spent := maps.Clone(c)
	for program := range spent {
		spent[program] -= before[program]
	}
	return spent
}

func (c cpuTimes) sum() (sum time.Duration) {
	for _, took := range c {
		sum += took
	}
	return sum
}

// each tells who computed how much for each of n objects, most first.
func (c cpuTimes) each(n int) string {
	programs := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(c[b], c[a]) })
	for i, program := range programs {
		programs[i] = fmt.Sprintf("%s %.2f", program, c[program].Seconds()*1000/float64(n))
	}
	return "CPU, ms an object: " + strings.Join(programs, ", ")
}

// ticksOf reads user and system time: the 14th and 15th field, of which the second
// is a name that may hold anything.
func ticksOf(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick
}

// phaseTime is how long something took, and what all who took part computed.
type phaseTime struct{ wall, cpu time.Duration }

func (p phaseTime) String() string {
	return fmt.Sprintf("%.2f s (CPU %.2f s)", p.wall.Seconds(), p.cpu.Seconds())
}
