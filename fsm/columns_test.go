package fsm

import "testing"

func TestFindingsPointIntoTheText(t *testing.T) {
	const syntax = "Syntax error"
	for name, c := range map[string]badFile{
		"escapes":               {why: "each is one character of the text", code: "PG006", bad: guarded(`"self.a == \"\u00e4\x41\" && ⟦== 3"`), contains: []string{syntax}},
		"line break in quotes":  {why: "it is a blank, and the indent is nothing", code: "PG006", bad: guarded("'self.a == 3 &&\n        self.b\n        == ⟦== 3'"), contains: []string{syntax}},
		"joined lines":          {why: "a backslash takes the break away", code: "PG006", bad: guarded("\"self.a == 3 \\\n        && ⟦== 3\""), contains: []string{syntax}},
		"empty line in quotes":  {why: "is a line break of the text", code: "PG006", bad: guarded("'self.a\n\n        == ⟦== 3'"), contains: []string{syntax}},
		"plain over lines":      {why: "the same without quotes", code: "PG006", bad: guarded("self.a == 3 &&\n        ⟦== 3"), contains: []string{syntax}},
		"block":                 {why: "each line is one of the text", code: "PG006", bad: guarded("|\n        self.a == 3 &&\n          self.b == ⟦== 3"), contains: []string{syntax}},
		"folded block":          {why: "lines are joined by blanks", code: "PG006", bad: guarded(">-\n        self.a == 3 &&\n        self.b == ⟦== 3"), contains: []string{syntax}},
		"template in quotes":    {why: "behind what the text has before it", code: "PG006", bad: message(`"\tn: ${self.a} \"${self.b + ⟦}\""`), contains: []string{syntax}},
		"second expression":     {why: "all are checked", code: "PG006", bad: message(`'${⟦resutl.n} of ${⟦resutl.m}'`), contains: []string{"undeclared reference", "undeclared reference"}},
		"template in a block":   {why: "in its line", code: "PG006", bad: message("|\n      n is\n      ${self.a == ⟦== 3}"), contains: []string{syntax}},
		"escaped dollar":        {why: "it is two characters of the file for one", code: "PG006", bad: message(`'ä $${x} ${⟦resutl.n}'`), contains: []string{"undeclared reference"}},
		"parameter":             {why: "in its own text", code: "PG006", bad: one("    poll: 5s\n    steps: [{action: Work, with: {text: 'a ${self.b == ⟦== 3}'}}]\n" + toDone), contains: []string{syntax}},
		"parameter in a block":  {why: "of several lines", code: "PG006", bad: one("    poll: 5s\n    steps:\n    - action: Work\n      with:\n        text: |\n          a\n          ${self.b == ⟦== 3}\n" + toDone), contains: []string{syntax}},
		"type error in a block": {why: "not only syntax has a column", code: "PG006", bad: guarded("|-\n        phase.attempts == 1 &&\n        phase.name ⟦== 3"), contains: []string{"== has a value of type string on its left and one of type int on its right"}},
		"windows":               {why: "a line may end in two characters", code: "PG006", bad: guarded("|-\r\n        self.a == 3 &&\r\n        self.b == ⟦== 3\r"), contains: []string{syntax}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); c.check(t) })
	}
}
