package simulation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// human runs one schedule; the answer is what does not hold. It ends with what is sought.
func human(e *example, seed uint64, s schedule, sought property, log func(time.Duration, string)) map[property]string {
	scene, err := newScene(e, seed, s, log)
	if err != nil {
		return map[property]string{ends: err.Error()}
	}
	scene.sought = sought
	scene.play()
	return scene.wrong
}

// finding is a property that does not hold, and the first seed that shows it.
type finding struct {
	seed uint64
	said string
}

// humans plays many schedules of one machine, on all processors.
func humans(e *example, first uint64, n int) map[property]finding {
	var group sync.WaitGroup
	var mu sync.Mutex
	var next atomic.Uint64
	found := map[property]finding{}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < uint64(n); i = next.Add(1) - 1 {
				seed := first + i
				for p, said := range human(e, seed, e.draw(seed), "", nil) {
					mu.Lock()
					if old, known := found[p]; !known || seed < old.seed {
						found[p] = finding{seed, said}
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return found
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func TestTenRandomHumans(t *testing.T) {
	n := *runs
	if n == 0 {
		n = 10
	}
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			first := max(*seed, 1)
			found := humans(e, first, n)
			t.Logf("%d schedules from seed %d, in %s", n, first, time.Since(began).Round(time.Millisecond))
			for p, f := range found {
				t.Error(report(t, e, p, f))
			}
		})
	}
}

// report shrinks a schedule, and says what happened.
func report(t *testing.T, e *example, p property, f finding) string {
	s := shrink(e.draw(f.seed), func(s schedule) bool { return human(e, f.seed, s, p, nil)[p] != "" })
	var story []string
	wrong := human(e, f.seed, s, p, func(at time.Duration, text string) { story = append(story, fmt.Sprintf("\t%s\t%s", at, text)) })[p]
	if wrong == "" {
		wrong = f.said + " (not when it is played again)"
	}
	if i := slices.IndexFunc(story, func(line string) bool { return strings.Contains(line, "WRONG: "+string(p)) }); i >= 0 {
		story = story[max(0, i-40) : i+1]
	}
	return fmt.Sprintf("seed %d: %s\n%s\nwith:\n%s\nso:\n%s\nagain: go test ./test/simulation -run '%s$' -seed %d -runs 1",
		f.seed, p, wrong, s, strings.Join(story, "\n"), t.Name(), f.seed)
}
