package fsm

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
)

var listType = reflect.TypeFor[[]any]()

// template is a text with ${CEL} parts; $${ is a ${ that means itself.
type template struct {
	parts []templatePart
}

type templatePart struct {
	text string // literal, when expr is nil
	expr *expr
}

// parseTemplate compiles the expressions of a text; an expression ends at the
// brace that closes it, quotes respected.
func parseTemplate(text string) (*template, *compileError) {
	t := &template{}
	for rest, at := text, 0; rest != ""; {
		before, after, found := strings.Cut(rest, "${")
		escaped := found && strings.HasSuffix(before, "$")
		if escaped {
			before += "{"
		}
		if before != "" {
			t.parts = append(t.parts, templatePart{text: before})
		}
		if !found {
			return t, nil
		}
		if escaped {
			at += len(before) + 1
			rest = after
			continue
		}
		at += len(before) + 2
		end := closingBrace(after)
		if end < 0 {
			return nil, &compileError{message: "${ without a closing }", column: utf8.RuneCountInString(text[:at-2])}
		}
		e, cerr := compile(after[:end])
		if cerr != nil {
			return nil, &compileError{message: cerr.message, column: utf8.RuneCountInString(text[:at]) + cerr.column}
		}
		t.parts = append(t.parts, templatePart{expr: e})
		rest = after[end+1:]
		at += end + 1
	}
	return t, nil
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

// render never fails: a part that cannot be evaluated shows as "?", because a
// message must not stop a machine.
func (t *template) render(vars map[string]any) string {
	text, _ := t.fill(vars, func(error) error { return nil })
	return text
}

// value is what a parameter comes to: what the expression is where the template
// is nothing else, and a text where it is more.
func (t *template) value(vars map[string]any) (any, error) {
	if len(t.parts) == 1 && t.parts[0].expr != nil {
		v, _, err := t.parts[0].expr.prog.Eval(vars)
		if err != nil {
			return nil, fmt.Errorf("${%s}: %w", t.parts[0].expr.text, err)
		}
		return native(v)
	}
	return t.fill(vars, func(err error) error { return err })
}

// fill puts the values into the text. An error that failed answers ends it; one
// that it swallows shows as "?".
func (t *template) fill(vars map[string]any, failed func(error) error) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.expr == nil {
			b.WriteString(p.text)
			continue
		}
		v, _, err := p.expr.prog.Eval(vars)
		switch text, isText := v.(types.String); {
		case err != nil:
			if err := failed(fmt.Errorf("${%s}: %w", p.expr.text, err)); err != nil {
				return "", err
			}
			b.WriteString("?")
		case isText:
			b.WriteString(string(text))
		default:
			b.WriteString(show(v))
		}
	}
	return b.String(), nil
}
