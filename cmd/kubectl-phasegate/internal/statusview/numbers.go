package statusview

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// from is since when something is so, where that is known.
func (p *page) from(at *time.Time) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf(" since %s, %s ago", at.Format(time.RFC3339), p.since(*at))
}

func (p *page) since(at time.Time) string { return short(p.now.Sub(at).Seconds()) }

func (p *page) until(at time.Time) string {
	if left := at.Sub(p.now); left > 0 {
		return "in " + short(left.Seconds())
	}
	if p.now.Sub(at) < time.Second {
		return "now"
	}
	return p.since(at) + " ago"
}

func short(seconds float64) string {
	return duration.HumanDuration(time.Duration(max(seconds, 0) * float64(time.Second)))
}

// bar has room for this many signs.
const barWidth = 20

func bar(done, total int64) string {
	full := barWidth
	if done < total {
		full = int(done * barWidth / total)
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + "]"
}

// Count is a number with its noun.
func Count[N int | int32 | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
