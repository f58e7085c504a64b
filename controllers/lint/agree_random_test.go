package lint_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes expressions and objects.
type generator struct {
	*rand.Rand
	// loose: something of no certain type is read.
	loose bool
}

func (g *generator) of(texts ...string) string { return texts[g.IntN(len(texts))] }

// typed are expressions by their type, as far as they mean to have one.
var typed = map[string][]string{
	"number": {`double(self.spec.ratio)`, `1.5`, `2.0`, `double(self.spec.limit)`, `self.spec.ratio`, `self.spec.?ratio.orValue(1.0)`, `self.spec.ratios[0]`},
	"int":    {`self.spec.limit`, `self.spec["max-age"]`, `3`, `self.spec.?limit.orValue(3)`, `size(self.spec.wait)`, `self.spec.texts.size()`, `int(self.spec.ratio)`},
	"text": {`self.spec.wait`, `self.spec.namespace`, `"b"`, `self.metadata.name`, `self.spec.key`, `string(self.spec.ratio)`, `self.spec.?wait.orValue("x")`,
		`self.spec.labels["x"]`, `self.metadata.?labels[?"x"].orValue("")`, `self.spec.until`, `self.spec.day`, `self.spec.period`, `self.spec.parts[0].name`},
	"time":     {`timestamp(self.spec.until)`, `now`, `timestamp("2026-05-01T00:00:00Z")`, `timestamp(self.metadata.creationTimestamp)`, `self.spec.until`},
	"duration": {`duration(self.spec.period)`, `duration("1m")`, `phase.age`, `duration("90s")`, `self.spec.period`},
	"bool":     {`self.spec.on`, `true`, `has(self.spec.wait)`, `has(self.status)`, `has(self.metadata.labels)`, `self.spec.?on.orValue(false)`},
	"list":     {`self.spec.texts`, `self.spec.ratios`, `[self.spec.wait, "b"]`, `[1, self.spec.ratio]`, `["b", self.spec.limit]`, `self.spec.?texts.orValue([])`},
	"loose":    {`self.spec.size`, `self.spec.free.x`, `self.spec.free`, `self.spec.maybe`, `self.spec.?maybe.orValue("x")`, `self.data.a`, `self.status.phase`, `self.spec`},
	"wrong":    {`self.spec.rato`, `self.spec.max__dash__age`, `variables.w`, `self.status.other`},
}

var types = []string{"number", "int", "text", "time", "duration", "bool", "list", "number", "int", "text", "bool", "loose"}

// field is an expression of a type, most often one of the first, which are of it for certain.
func (g *generator) field(t string) string {
	g.loose = g.loose || t == "loose"
	if g.IntN(6) > 0 {
		return g.of(typed[t][:min(4, len(typed[t]))]...)
	}
	return g.of(typed[t]...)
}

func (g *generator) value(t string, depth int) string {
	if g.IntN(150) == 0 {
		t = "wrong"
	}
	if depth == 0 {
		return g.field(t)
	}
	x := func(t string) string { return g.value(t, depth-1) }
	switch t {
	case "number", "int":
		return g.of(g.field(t), "("+x(t)+g.of(" + ", " - ", " * ")+x(t)+")", "("+x("bool")+" ? "+x(t)+" : "+x(t)+")")
	case "text":
		return g.of(g.field(t), "("+x(t)+" + "+x(t)+")", "("+x("bool")+" ? "+x(t)+" : "+x(t)+")", "cel.bind(b, "+x(t)+", b + b)")
	case "bool":
		return g.condition(depth - 1)
	case "list":
		return g.of(g.field(t), "["+x("text")+", "+x("text")+"]", "["+x("number")+", "+x("int")+"]", "self.spec.parts.map(p, p."+g.of("name", "share", "share * 2.0", "share > 1")+")", "self.spec.ratios.filter(r, r"+g.of(" > 1", " == 2.5", " + 1.0 > 2.0")+")")
	}
	return g.field(t)
}

func (g *generator) any(depth int) string { return g.value(types[g.IntN(len(types))], depth) }

func (g *generator) condition(depth int) string {
	if depth <= 0 {
		return g.field("bool")
	}
	t := types[g.IntN(len(types))]
	other := t
	if g.IntN(15) == 0 {
		other = types[g.IntN(len(types))]
	}
	one := func() string { return g.value(t, depth-1) }
	switch g.IntN(9) {
	case 0:
		return "(" + g.condition(depth-1) + " && " + g.condition(depth-1) + ")"
	case 1:
		return "(" + g.condition(depth-1) + " || !" + g.condition(depth-1) + ")"
	case 2:
		return one() + " in [" + one() + ", " + g.value(other, depth-1) + "]"
	case 3:
		return "self.spec." + g.of("texts", "ratios", "parts") + g.of(".all", ".exists", ".exists_one") + "(i, i" + g.of("", ".name", ".share") + " == " + one() + ")"
	case 4:
		return g.value("text", depth-1) + g.of(".startsWith", ".endsWith", ".contains") + "(" + g.value("text", depth-1) + ")"
	case 5:
		g.loose = true // of any type
		return "variables.v == " + one()
	}
	return "(" + one() + g.of(" == ", " != ", " < ", " <= ", " > ") + g.value(other, depth-1) + ")"
}

// object is one that an API server would store, often without some of its fields.
func (g *generator) object() string {
	fields := map[string][]string{
		"ratio": {"2", "2.0", "2.5", "-1", "1e3", "0.1"}, "limit": {"3", "0", "9007199254740993", "-5"}, "size": {`"10%"`, "3"},
		"until": {`"2026-05-01T00:00:00Z"`, `"2026-01-01T00:00:00.5+02:00"`}, "day": {`"2026-05-01"`}, "period": {`"90s"`, `"1h"`}, "key": {`"YQ=="`, `""`},
		"on": {"true", "false"}, "wait": {`"b"`, `""`, `"2"`}, "max-age": {"5"}, "namespace": {`"c"`}, "maybe": {"null", `"x"`},
		"labels": {"{}", `{"x": "y"}`}, "ratios": {"[]", "[1, 2.5]", "[2.5]"}, "texts": {"[]", `["x", "b"]`},
		"parts": {"[]", `[{"name": "a", "share": 1}, {"name": "b", "share": 2.5}]`, `[{"name": "a"}]`}, "free": {`{"x": 1}`, "{}", `{"x": {"y": 1.5}}`},
	}
	var spec []string
	for _, name := range []string{"ratio", "limit", "size", "until", "day", "period", "key", "on", "wait", "max-age", "namespace", "maybe", "labels", "ratios", "texts", "parts", "free"} {
		if g.IntN(8) > 0 {
			spec = append(spec, fmt.Sprintf("%q: %s", name, g.of(fields[name]...)))
		}
	}
	text := `{"metadata": {"name": "a"` + g.of("", `, "labels": {"x": "y"}`) + `}`
	if g.IntN(20) > 0 {
		text += `, "spec": {` + strings.Join(spec, ", ") + "}"
	}
	return text + g.of("", `, "data": {"a": "b"}`) + "}"
}
