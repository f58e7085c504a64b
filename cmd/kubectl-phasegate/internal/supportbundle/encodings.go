package supportbundle

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// view is a text as it reads when an encoding is undone. at has where each byte comes from in the text that is looked
// through, and where that ends.
type view struct {
	text string
	at   []int
}

func viewOf(text string) view {
	at := make([]int, len(text)+1)
	for i := range at {
		at[i] = i
	}
	return view{text, at}
}

// encoding finds what stands for something else, and what that is.
type encoding struct {
	pattern *regexp.Regexp
	decode  func(string) string
}

// encodings are those in which programs write a text into another one. A text can be in several, one in another.
var encodings = []encoding{
	// JSON, whatever it escapes, and the quoted texts of Go.
	{regexp.MustCompile(`\\(?:["\\/bfnrtav']|(?:u[0-9a-fA-F]{4})(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8})`), unquoted},
	// Queries and forms; paths, where a plus means itself.
	{regexp.MustCompile(`%[0-9a-fA-F]{2}|\+`), unescaped},
	{regexp.MustCompile(`%[0-9a-fA-F]{2}`), unescaped},
	// HTML and XML.
	{regexp.MustCompile(`&#?[0-9a-zA-Z]{2,8};`), html.UnescapeString},
}

func unquoted(escape string) string {
	var text string
	if json.Unmarshal([]byte(`"`+escape+`"`), &text) == nil {
		return text
	}
	if text, err := strconv.Unquote(`"` + escape + `"`); err == nil {
		return text
	}
	return escape
}

func unescaped(escape string) string {
	if escape == "+" {
		return " "
	}
	n, err := strconv.ParseUint(escape[1:], 16, 8)
	if err != nil {
		return escape
	}
	return string([]byte{byte(n)})
}

// undone is the view of what an encoding stands for.
func (v view) undone(e encoding) view {
	out := view{at: make([]int, 0, len(v.at))}
	var b strings.Builder
	keep := func(from, to int) {
		b.WriteString(v.text[from:to])
		out.at = append(out.at, v.at[from:to]...)
	}
	last := 0
	for _, found := range e.pattern.FindAllStringIndex(v.text, -1) {
		keep(last, found[0])
		decoded := e.decode(v.text[found[0]:found[1]])
		b.WriteString(decoded)
		out.at = append(out.at, slices.Repeat([]int{v.at[found[0]]}, len(decoded))...)
		last = found[1]
	}
	keep(last, len(v.text))
	out.text, out.at = b.String(), append(out.at, v.at[len(v.text)])
	return out
}

// nested is how many encodings are undone, one in another: JSON in a line of a log that is JSON, of an object that has
// it in an annotation.
const nested = 3

// span is a part of a text, and what to write instead.
type span struct {
	from, to int
	instead  string
}

// search looks through all views of a text.
type search struct {
	*Redactor
	// from is how long a value must be.
	from  int
	seen  map[string]bool
	spans []span
}

func (s *search) look(v view, depth int) {
	if s.seen[v.text] {
		return
	}
	s.seen[v.text] = true
	for _, looks := range secrets {
		for _, found := range looks.FindAllStringIndex(v.text, -1) {
			s.spans = append(s.spans, span{v.at[found[0]], v.at[found[1]], leftOut})
		}
	}
	for value, instead := range s.names {
		if len(value) < s.from {
			continue
		}
		for from := 0; ; {
			i := strings.Index(v.text[from:], value)
			if i < 0 {
				break
			}
			s.spans = append(s.spans, span{v.at[from+i], v.at[from+i+len(value)], instead})
			from += i + len(value)
		}
	}
	if depth == 0 {
		return
	}
	s.lookInBase64(v, depth-1)
	for _, e := range encodings {
		s.look(v.undone(e), depth-1)
	}
}

// inBase64 may be Base64 of as much as is looked for, in either alphabet.
var inBase64 = regexp.MustCompile(`[A-Za-z0-9+/_-]{6,}`)

var toStandard = strings.NewReplacer("-", "+", "_", "/")

// lookInBase64 leaves out all of what is Base64 of something that is to be left out. It may begin anywhere in what
// looks like it: a path has the same characters. A short name is in much of what is no Base64 at all.
func (s *search) lookInBase64(v view, depth int) {
	for _, found := range inBase64.FindAllStringIndex(v.text, -1) {
		word := toStandard.Replace(v.text[found[0]:found[1]])
		for start := range min(4, len(word)) {
			whole := word[start : len(word)-(len(word)-start)%4]
			rest := word[start+len(whole):]
			if len(rest) == 1 {
				rest = "" // no Base64 ends so
			}
			decoded, err := base64.RawStdEncoding.DecodeString(whole + rest)
			if err != nil {
				continue
			}
			inner := &search{Redactor: s.Redactor, from: contentFrom, seen: map[string]bool{}}
			if inner.look(viewOf(string(decoded)), min(depth, 1)); len(inner.spans) > 0 {
				s.spans = append(s.spans, span{v.at[found[0]], v.at[found[1]], inner.spans[0].instead})
				break
			}
		}
	}
}

// replaced writes instead of each span what stands for it; of those that overlap, what stands for the longest.
func replaced(text string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	var b strings.Builder
	last := 0
	for i := 0; i < len(spans); {
		whole, longest := spans[i], spans[i]
		for i++; i < len(spans) && spans[i].from < whole.to; i++ {
			whole.to = max(whole.to, spans[i].to)
			if spans[i].to-spans[i].from > longest.to-longest.from {
				longest = spans[i]
			}
		}
		b.WriteString(text[last:whole.from] + longest.instead)
		last = whole.to
	}
	return b.String() + text[last:]
}
