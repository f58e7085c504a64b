package fsm

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types/ref"
)

var listType = reflect.TypeFor[[]any]()

// template is a text with ${CEL} parts.
type template struct {
	parts []templatePart
}

type templatePart struct {
	text string // literal, when expr is nil
	expr *expr
	at   int // offset of the expression in the text
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
			return nil, &compileError{message: "${ without a closing }", column: at - 2}
		}
		e, cerr := compile(after[:end])
		if cerr != nil {
			return nil, &compileError{message: cerr.message, column: at + cerr.column}
		}
		t.parts = append(t.parts, templatePart{expr: e, at: at})
		rest = after[end+1:]
		at += end + 1
	}
	return t, nil
}

func closingBrace(s string) int {
	depth, quote := 0, rune(0)
	for i, c := range s {
		switch {
		case quote != 0:
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
		v, _, err := p.expr.eval(vars)
		if err != nil {
			b.WriteString("?")
			continue
		}
		if val, ok := v.(ref.Val); ok {
			v = val.Value()
		}
		fmt.Fprint(&b, v)
	}
	return b.String()
}
