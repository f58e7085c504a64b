package program

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

var (
	// reasonWord is narrower than the API's own rule, which allows , and : too.
	reasonWord = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_]{0,126}[A-Za-z0-9])?$`)
	notInWord  = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// Word makes a text fit to be the reason of a condition.
func Word(text string) string {
	if reasonWord.MatchString(text) {
		return text
	}
	w := strings.TrimLeft(notInWord.ReplaceAllString(text, ""), "0123456789")
	return cmp.Or(w[:min(len(w), v1alpha1.ReasonLimit)], "Unknown")
}

// unique finds the second of two with one name.
func (f *findings) unique(path, what, name string) {
	key := what + " " + name
	if first, twice := f.declared[key]; twice {
		f.find(path+".name", "PG000", fmt.Sprintf("%s %q is declared twice, in line %d first", what, name, f.def.Pos(first).Line), "rename or remove one")
		return
	}
	f.declared[key] = path + ".name"
}

// selectable names can stand behind variables. and request. in an expression.
func (f *findings) selectable(path, what, name string) {
	if !expr.Identifier.MatchString(name) {
		f.find(path+".name", "PG000", fmt.Sprintf("%q is not a name for %s", name, what), "write at most 63 letters, digits and _, a letter first")
	}
}

// Count is how many are set.
func Count(set ...bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

func (f *findings) limit(path string, n, most int) {
	if n > most {
		f.find(path, "PG000", fmt.Sprintf("%d entries, more than %d", n, most), "remove some: the status holds no more")
	}
}

// phaseWords checks the texts of a phase that end up as reasons of conditions.
func (f *findings) phaseWords(p *Phase) {
	for i, r := range p.Require {
		f.reason(fmt.Sprintf("%s.require[%d].reason", p.Path, i), r.Reason)
	}
	for i, x := range p.Next {
		f.reason(fmt.Sprintf("%s.next[%d].reason", p.Path, i), x.Reason)
	}
	for i, e := range p.OnError {
		f.reason(fmt.Sprintf("%s.onError[%d].reason", p.Path, i), e.Reason)
	}
	if p.Timeout != nil {
		f.reason(p.Path+".timeout.reason", p.Timeout.Reason)
		f.reason(p.Path+".timeout.stalled", p.Timeout.Stalled)
	}
}

func (f *findings) reason(path, text string) {
	if text != "" && !reasonWord.MatchString(text) {
		f.find(path, "PG000", fmt.Sprintf("%q is not a reason", text), "write one CamelCase word")
	}
}

func (f *findings) duration(path, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		f.find(path, "PG000", fmt.Sprintf("%q is not a positive duration", text), "write for example 10s, 5m or 24h")
		return 0
	}
	return d
}

func (f *findings) retry(path string, src *v1alpha1.Retry, base Backoff) Backoff {
	if src == nil {
		return base
	}
	r := Backoff{Base: cmp.Or(f.duration(path+".base", src.Base), base.Base), Max: cmp.Or(f.duration(path+".max", src.Max), base.Max),
		Factor: cmp.Or(src.Factor, base.Factor), Jitter: *cmp.Or(src.Jitter, &base.Jitter), Attempts: src.Attempts, To: src.To,
		NonRetryable: f.nonRetryable(path+".nonRetryable", src.NonRetryable, base.NonRetryable)}
	if r.Factor < 1 || r.Jitter < 0 || r.Jitter > 1 || r.Attempts < 0 {
		f.find(path, "PG000", "factor must be at least 1, jitter between 0 and 1, attempts not negative", "correct the backoff")
	}
	if r.To != "" && r.Attempts == 0 && len(r.NonRetryable) == 0 {
		f.find(path+".to", "PG000", "retry.to without attempts or nonRetryable is never reached", "add attempts: N")
	}
	return r
}
