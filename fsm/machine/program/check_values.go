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
func (c *compiler) unique(path, what, name string) {
	key := what + " " + name
	if first, twice := c.declared[key]; twice {
		c.find(path+".name", "PG000", fmt.Sprintf("%s %q is declared twice, in line %d first", what, name, c.def.Pos(first).Line), "rename or remove one")
		return
	}
	c.declared[key] = path + ".name"
}

// selectable names can stand behind variables. and request. in an expression.
func (c *compiler) selectable(path, what, name string) {
	if !expr.Identifier.MatchString(name) {
		c.find(path+".name", "PG000", fmt.Sprintf("%q is not a name for %s", name, what), "write at most 63 letters, digits and _, a letter first")
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

func (c *compiler) limit(path string, n, most int) {
	if n > most {
		c.find(path, "PG000", fmt.Sprintf("%d entries, more than %d", n, most), "remove some: the status holds no more")
	}
}

// phaseWords checks the texts of a phase that end up as reasons of conditions.
func (c *compiler) phaseWords(p *Phase) {
	for i, r := range p.Require {
		c.reason(fmt.Sprintf("%s.require[%d].reason", p.Path, i), r.Reason)
	}
	for i, x := range p.Next {
		c.reason(fmt.Sprintf("%s.next[%d].reason", p.Path, i), x.Reason)
	}
	for i, e := range p.OnError {
		c.reason(fmt.Sprintf("%s.onError[%d].reason", p.Path, i), e.Reason)
	}
	if p.Timeout != nil {
		c.reason(p.Path+".timeout.reason", p.Timeout.Reason)
		c.reason(p.Path+".timeout.stalled", p.Timeout.Stalled)
	}
}

func (c *compiler) reason(path, text string) {
	if text != "" && !reasonWord.MatchString(text) {
		c.find(path, "PG000", fmt.Sprintf("%q is not a reason", text), "write one CamelCase word")
	}
}

func (c *compiler) duration(path, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		c.find(path, "PG000", fmt.Sprintf("%q is not a positive duration", text), "write for example 10s, 5m or 24h")
		return 0
	}
	return d
}

func (c *compiler) retry(path string, src *v1alpha1.Retry, base Backoff) Backoff {
	if src == nil {
		return base
	}
	r := Backoff{Base: cmp.Or(c.duration(path+".base", src.Base), base.Base), Max: cmp.Or(c.duration(path+".max", src.Max), base.Max),
		Factor: cmp.Or(src.Factor, base.Factor), Jitter: *cmp.Or(src.Jitter, &base.Jitter), Attempts: src.Attempts, To: src.To}
	if r.Factor < 1 || r.Jitter < 0 || r.Jitter > 1 || r.Attempts < 0 {
		c.find(path, "PG000", "factor must be at least 1, jitter between 0 and 1, attempts not negative", "correct the backoff")
	}
	if r.To != "" && r.Attempts == 0 {
		c.find(path+".to", "PG000", "retry.to without attempts is never reached", "add attempts: N")
	}
	return r
}
