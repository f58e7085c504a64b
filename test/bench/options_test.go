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
)

// short are the names of contenders for people in a hurry.
var short = map[string]report.Contender{
	"raw": report.Raw, "shipped": report.Shipped, "unlimited": report.Unlimited, "underlock": report.UnderLock, "ahead": report.Ahead, "served": report.Served,
	"two": report.Two, "alone": report.Alone, "beside": report.Beside, "quiet": report.Quiet, "flooded": report.Flooded,
}

type benchOptions struct {
	sizes      []int
	repeats    int
	contenders []report.Contender
	out        string
}

func options(b *testing.B) benchOptions {
	o := benchOptions{sizes: slices.Clone(report.Wanted.Sizes), repeats: report.Wanted.Repeats, out: os.Getenv(outEnv)}
	if text := os.Getenv(sizesEnv); text != "" {
		o.sizes = nil
		for part := range strings.SplitSeq(text, ",") {
			o.sizes = append(o.sizes, parse(b, sizesEnv, part))
		}
	}
	if text := os.Getenv(objectsEnv); text != "" {
		o.sizes, o.repeats = []int{parse(b, objectsEnv, text)}, 1
	}
	slices.Sort(o.sizes)
	o.repeats = number(b, repeatsEnv, o.repeats)
	names := []string{"raw", "shipped", "unlimited", "underlock", "ahead", "served", "two", "alone", "beside", "quiet", "flooded"}
	if os.Getenv(objectsEnv) != "" {
		names = []string{"raw", "unlimited", "ahead", "beside", "quiet"}
	}
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
