package expr

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
)

// mixedLiterals lets lists and maps in an expression hold values of several types. Kubernetes refuses them, which works where
// all types are known. Of an object without a schema none is: [self.spec.a, "b"] would be refused by a program without one,
// and taken with it. It is a validator that takes the complaints of another one back, since none can be left out of an
// environment: it comes after Kubernetes' own.
type mixedLiterals struct{}

func (mixedLiterals) Name() string { return "phasegate.dev/mixed-literals" }

// mixed is what cel.ValidateHomogeneousAggregateLiterals says.
var mixed = regexp.MustCompile(`^expected type '.*' but found '.*'$`)

func (mixedLiterals) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *celast.AST, issues *cel.Issues) {
	others := common.NewErrors(common.NewTextSource(""))
	for _, e := range issues.Errors() {
		if !mixed.MatchString(e.Message) {
			others.ReportErrorAtID(e.ExprID, e.Location, "%s", e.Message)
		}
	}
	*issues = *cel.NewIssuesWithSourceInfo(others, a.SourceInfo())
}
