package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Template is a text with ${CEL} parts; $${ is a ${ that means itself.
type Template struct {
	parts []templatePart
}

type templatePart struct {
	text string // literal, when expr is nil
	expr *Expr
}

// ParseTemplate compiles the expressions of a text; an expression ends at the
// brace that closes it, quotes respected. The findings are those of all of them.
func ParseTemplate(text string, compile func(string) (*Expr, []Problem)) (*Template, []Problem) {
	t := &Template{}
	var errs []Problem
	for rest := text; rest != ""; {
		at := utf8.RuneCountInString(text[:len(text)-len(rest)])
		before, after, found := strings.Cut(rest, "${")
		if found && strings.HasSuffix(before, "$") {
			t.parts = append(t.parts, templatePart{text: before + "{"})
			rest = after
			continue
		}
		if before != "" {
			t.parts = append(t.parts, templatePart{text: before})
		}
		if !found {
			break
		}
		at += utf8.RuneCountInString(before)
		end := closingBrace(after)
		if end < 0 {
			errs = append(errs, Problem{Code: "PG006", Message: "${ without a closing }", Fix: "add the }, or write $${ for a ${ that means itself", Offset: at})
			break
		}
		e, more := compile(after[:end])
		for _, x := range more {
			x.Offset += at + len("${")
			errs = append(errs, x)
		}
		t.parts = append(t.parts, templatePart{expr: e})
		rest = after[end+1:]
	}
	return t, errs
}

func closingBrace(s string) int {
	depth, quote, escaped := 0, rune(0), false
	for i, c := range s {
		switch {
		case escaped:
			escaped = false
		case quote != 0:
			escaped = c == '\\'
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// alone answers the expression of a template that is nothing else, else nil.
func (t *Template) alone() *Expr {
	if len(t.parts) == 1 {
		return t.parts[0].expr
	}
	return nil
}

// Alone is the expression of a template, nil where it does not compile; is: the template is nothing else.
func (t *Template) Alone() (e *Expr, is bool) {
	return t.alone(), len(t.parts) == 1 && t.parts[0].text == ""
}

// Within are the expressions that stand in a text with more than them.
func (t *Template) Within() (texts []string) {
	for _, part := range t.parts {
		if part.expr != nil && len(t.parts) > 1 {
			texts = append(texts, part.expr.Text)
		}
	}
	return texts
}

// Evaluator answers the value of an expression.
type Evaluator func(*Expr) (ref.Val, error)

// Render never fails: a part that cannot be evaluated shows as "?", because a
// message must not stop a machine.
func (t *Template) Render(eval Evaluator) string {
	text, _ := t.fill(eval, func(error) error { return nil })
	return text
}

// Value is what a parameter comes to: what the expression is where the template
// is nothing else, and a text where it is more.
func (t *Template) Value(eval Evaluator) (any, error) {
	e := t.alone()
	if e == nil {
		return t.fill(eval, func(err error) error { return err })
	}
	v, err := eval(e)
	if err != nil {
		return nil, fmt.Errorf("${%s}: %w", e.Text, err)
	}
	return Native(v)
}

// fill puts the values into the text. An error that failed answers ends it; one
// that it swallows shows as "?".
func (t *Template) fill(eval Evaluator, failed func(error) error) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.expr == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := eval(p.expr)
		switch text, isText := v.(types.String); {
		case err != nil:
			if err := failed(fmt.Errorf("${%s}: %w", p.expr.Text, err)); err != nil {
				return "", err
			}
			b.WriteString("?")
		case isText:
			b.WriteString(string(text))
		default:
			b.WriteString(Show(v))
		}
	}
	return b.String(), nil
}
