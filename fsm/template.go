package fsm

import (
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
)

var listType = reflect.TypeFor[[]any]()

// template is a text with ${CEL} parts.
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
		if before != "" {
			t.parts = append(t.parts, templatePart{text: before})
		}
		if !found {
			return t, nil
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
	if t == nil {
		return ""
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
			b.WriteString("?")
		case isText:
			b.WriteString(string(text))
		default:
			b.WriteString(show(v))
		}
	}
	return b.String()
}
