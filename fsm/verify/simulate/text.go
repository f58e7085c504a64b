package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm"
)

const maxText = 1000

var plainText = regexp.MustCompile(`^[\pL\d_./·%-][\pL\d _./·%=()@;-]*$`)

// flow writes a value as a person would in a YAML file, on one line.
func flow(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var back any
	if err := utiljson.Unmarshal(data, &back); err != nil {
		return fmt.Sprint(v)
	}
	return flowValue(back)
}

func flowValue(v any) string {
	switch x := v.(type) {
	case map[string]any:
		parts := make([]string, 0, len(x))
		for _, key := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, flowValue(key)+": "+flowValue(x[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(x))
		for i, item := range x {
			parts[i] = flowValue(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if plainText.MatchString(x) {
			return x
		}
		return strconv.Quote(x)
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// Describe tells what a person sees of the object now, several lines; times are
// relative to now.
func (w *world) Describe() string {
	if w.gone {
		return "gone, left in place " + list(w.InPlace())
	}
	b, st := &strings.Builder{}, w.ShownMachine
	fmt.Fprintf(b, "%s: %s\n", w.Shown.Phase, w.Shown.Message)
	for _, c := range w.Shown.Conditions {
		fmt.Fprintf(b, "  %s=%s %s\n", c.Type, c.Status, c.Reason)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Fields)) {
		fmt.Fprintf(b, "  status.%s: %s\n", name, flow(w.Fields[name]))
	}
	if st.Step != "" {
		fmt.Fprintf(b, "  step %s, stepIndex %d, attempts %d\n", st.Step, st.StepIndex, st.Attempts)
	}
	if st.Deadline != nil {
		fmt.Fprintf(b, "  deadline %s\n", fromNow(st.Deadline.Sub(w.now).Round(time.Second)))
	}
	if st.Attempts > 0 && st.NotBefore != nil {
		fmt.Fprintf(b, "  next try %s\n", fromNow(st.NotBefore.Sub(w.now).Round(time.Millisecond)))
	}
	fmt.Fprintf(b, "  held %s, in place %s\n", list(st.HeldNames()), list(w.InPlace()))
	for _, x := range st.Blocked {
		fmt.Fprintf(b, "  blocked %s%s: %s: %s\n", x.To, x.Step, x.Guard, x.Value)
	}
	for _, q := range st.Requests {
		fmt.Fprintf(b, "  request %s %q\n", q.Name, q.Token)
	}
	fmt.Fprintf(b, "  on delete: %s", w.Machine.Deletion(st))
	return b.String()
}

// fromNow says when something is, or was.
func fromNow(left time.Duration) string {
	switch {
	case left > 0:
		return "in " + left.String()
	case left == 0:
		return "now"
	}
	return (-left).String() + " ago"
}

func list(names []string) string { return "[" + strings.Join(names, " ") + "]" }

// reasonsOf are those of the conditions, each once.
func reasonsOf(shown fsm.Summary) []string {
	var out []string
	for _, c := range shown.Conditions {
		if !slices.Contains(out, c.Reason) {
			out = append(out, c.Reason)
		}
	}
	return out
}
