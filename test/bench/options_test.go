package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/bench/report"
)

// What is measured is said by the environment, because make passes that on.
const (
	sizesEnv      = "BENCH_SIZES"      // numbers of objects, by commas
	objectsEnv    = "BENCH_OBJECTS"    // one number of objects, measured once, without what takes longest
	repeatsEnv    = "BENCH_REPEATS"    // how often each contender runs at each size
	contendersEnv = "BENCH_CONTENDERS" // some of the short names below, by commas
	outEnv        = "BENCH_OUT"        // directory to write to; empty: nothing is written
	anewEnv       = "BENCH_ANEW"       // not empty: what was measured already is measured again
)

// short are the names of contenders for people in a hurry.
var short = map[string]report.Contender{
	"raw": report.Raw, "shipped": report.Shipped, "unlimited": report.Unlimited, "underlock": report.UnderLock, "ahead": report.Ahead, "served": report.Served,
	"two": report.Two, "alone": report.Alone, "beside": report.Beside, "quiet": report.Quiet, "flooded": report.Flooded, "whole": report.Whole,
}

type benchOptions struct {
	sizes      []int
	contenders []report.Contender
	// repeats is how often each runs; 0: as often as a complete document has it.
	repeats int
	// anew measures again what was measured already.
	anew bool
	out  string
}

func options(b *testing.B) benchOptions {
	o := benchOptions{sizes: report.Sizes(), out: os.Getenv(outEnv), anew: os.Getenv(anewEnv) != ""}
	if text := os.Getenv(sizesEnv); text != "" {
		o.sizes = nil
		for part := range strings.SplitSeq(text, ",") {
			o.sizes = append(o.sizes, parse(b, sizesEnv, part))
		}
	}
	names := []string{"raw", "shipped", "unlimited", "underlock", "ahead", "served", "two", "alone", "beside", "quiet", "flooded", "whole"}
	if text := os.Getenv(objectsEnv); text != "" {
		o.sizes, o.repeats, o.anew = []int{parse(b, objectsEnv, text)}, 1, true
		names = []string{"raw", "unlimited", "ahead", "beside", "quiet", "whole"}
	}
	slices.Sort(o.sizes)
	o.repeats = number(b, repeatsEnv, o.repeats)
	if text := os.Getenv(contendersEnv); text != "" {
		names = strings.Split(text, ",")
	}
	for _, name := range names {
		c, known := short[name]
		if !known {
			b.Fatalf("%s: there is no contender %q", contendersEnv, name)
		}
		o.contenders = append(o.contenders, c)
	}
	return o
}

// planned is one run that was asked for.
type planned struct {
	objects, repeat int
	contender       report.Contender
}

func (p planned) String() string {
	return fmt.Sprintf("%s, %d objects, repeat %d", p.contender, p.objects, p.repeat)
}

// plan lists the runs in their order: each repeat is one run of every contender, in another order, so that what else the
// machine does is not taken for one of them.
func (o benchOptions) plan() (all []planned) {
	for _, n := range o.sizes {
		often := func(c report.Contender) int {
			switch {
			case o.repeats > 0:
				return o.repeats
			case slices.Contains(report.Sizes(), n) && os.Getenv(contendersEnv) == "":
				return report.Wanted(c, n)
			}
			return max(1, report.Wanted(c, n)) // it was asked for by name
		}
		most := 0
		for _, c := range o.contenders {
			most = max(most, often(c))
		}
		for repeat := range most {
			for _, c := range rotated(o.contenders, repeat) {
				if repeat < often(c) {
					all = append(all, planned{n, repeat + 1, c})
				}
			}
		}
	}
	return all
}

func rotated(all []report.Contender, by int) []report.Contender {
	by %= len(all)
	return slices.Concat(all[by:], all[:by])
}

// command is how to measure this again.
func (o benchOptions) command() string {
	var text strings.Builder
	for _, env := range []string{sizesEnv, objectsEnv, repeatsEnv, contendersEnv, "CALICO_CRDS"} {
		if value := os.Getenv(env); value != "" {
			fmt.Fprintf(&text, "%s=%s ", env, value)
		}
	}
	return text.String() + "make bench"
}

// number reads a number from an environment variable.
func number(b *testing.B, env string, otherwise int) int {
	if text := os.Getenv(env); text != "" {
		return parse(b, env, text)
	}
	return otherwise
}

func parse(b *testing.B, env, text string) int {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		b.Fatalf("%s=%q: give positive numbers", env, text)
	}
	return n
}
