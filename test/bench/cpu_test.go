package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is USER_HZ, in which Linux counts the time of processes for everybody.
const clockTick = 10 * time.Millisecond

// cpuTime is what this process and all processes with dir on their command line
// have computed so far: the servers of the cluster in dir, and the manager. Wall
// time is for an idle machine; on a shared one this tells who did the work.
func cpuTime(dir string) time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // it cannot fail with these arguments
	sum := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, p := range processes {
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue // it has ended, or is none of ours
		}
		if stat, err := os.ReadFile(filepath.Join(p, "stat")); err == nil {
			sum += ticksOf(string(stat))
		}
	}
	return sum
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
