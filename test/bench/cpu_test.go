package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// cpuNow is what this process and those of the cluster in dir have computed so far.
func cpuNow(dir string) harness.CPUTimes {
	all := harness.CPUOf(dir)
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // it cannot fail with these arguments
	all["bench"] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return all
}

// cpuOfEach tells who computed how much for each of n objects, most first.
func cpuOfEach(c harness.CPUTimes, n int) string {
	programs := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(c[b], c[a]) })
	for i, program := range programs {
		programs[i] = fmt.Sprintf("%s %.2f", program, c[program].Seconds()*1000/float64(n))
	}
	return "CPU, ms an object: " + strings.Join(programs, ", ")
}

// phaseTime is how long something took, and what all who took part computed.
type phaseTime struct{ wall, cpu time.Duration }

func (p phaseTime) String() string {
	return fmt.Sprintf("%.2f s (CPU %.2f s)", p.wall.Seconds(), p.cpu.Seconds())
}
