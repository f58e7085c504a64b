package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	declared "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// MaxRunCost is what all expressions of one reconcile may cost together, as the
// API server has it for one request; one evaluation may cost PerCallLimit.
const MaxRunCost = apiservercel.RuntimeCELCostBudget

// assumedSize stands for the length of what nobody bounds: that of a result, of
// an object without a schema, or of what an expression makes. 128 texts of 128
// bytes are as much as a status holds of results.
const assumedSize = 128

// costs finds expressions that could cost more than one evaluation may. Where only
// a schema without limits makes that possible it is a warning: an object of
// ordinary size passes.
func (s *Scope) costs(ast *cel.Ast) []Problem {
	const limit = apiservercel.PerCallLimit
	usual := &sizes{scope: s, unbounded: map[string]bool{}}
	if cost, err := s.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: usual}); err != nil || cost.Max > limit {
		return []Problem{{Code: "PG016", Message: fmt.Sprintf("it may cost %s, more than the %d that one evaluation may cost", price(cost.Max), limit),
			Fix: "loop over less, or let an action compute it"}}
	}
	worst := &sizes{scope: s, worst: true, unbounded: map[string]bool{}}
	if cost, err := s.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: worst}); err != nil || cost.Max > limit {
		return []Problem{{Code: "PG016", Severity: diag.SeverityWarning,
			Message: fmt.Sprintf("with the largest object that the schema allows it costs %s, more than the %d that one evaluation may cost, and fails", price(cost.Max), limit),
			Fix: fmt.Sprintf("give maxItems, maxProperties or maxLength in the schema to %s, or read less of it",
				strings.Join(slices.Sorted(maps.Keys(worst.unbounded)), ", "))}}
	}
	return nil
}

func price(cost uint64) string {
	if cost > 1<<40 {
		return "more than can be counted"
	}
	return fmt.Sprint(cost)
}

// sizes estimates the length of texts, lists and maps.
type sizes struct {
	scope *Scope
	// worst: what the schema does not bound is as large as a request can be.
	worst bool
	// unbounded are the places of self that the schema does not bound.
	unbounded map[string]bool
}

// EstimateSize answers the length of a value.
func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if slices.Contains(scalars, node.Type().Kind()) {
		return nil // the library knows their size
	}
	return &checker.SizeEstimate{Max: s.most(node.Path())}
}

var scalars = []types.Kind{types.BoolKind, types.DoubleKind, types.DurationKind, types.IntKind, types.TimestampKind, types.UintKind}

// EstimateCallCost leaves functions to the libraries that have them.
func (s *sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func (s *sizes) most(path []string) uint64 {
	switch {
	case len(path) == 0:
		return assumedSize
	case path[0] == VarHeld:
		return max(v1alpha1.EffectLimit, 63) // of the list, and of a name
	case path[0] == VarSelf && s.scope.self != nil:
		return s.self(path)
	}
	return assumedSize
}

// self walks the schema along a path.
func (s *sizes) self(path []string) uint64 {
	decl, schema := s.scope.self.decl, s.scope.self.root
	for _, name := range path[1:] {
		decl, schema = part(decl, schema, name)
		if decl == nil || schema == nil {
			return assumedSize
		}
	}
	if bounded(schema) {
		return uint64(decl.MaxElements)
	}
	s.unbounded[strings.NewReplacer(".@items", "[]", ".@values", "[]").Replace(strings.Join(path, "."))] = true
	if s.worst {
		return uint64(decl.MaxElements)
	}
	return assumedSize
}

func part(d *declared.DeclType, schema common.Schema, name string) (*declared.DeclType, common.Schema) {
	switch name {
	case "@items", "@values":
		if schema.Items() != nil {
			return d.ElemType, schema.Items()
		}
		if a := schema.AdditionalProperties(); a != nil {
			return d.ElemType, a.Schema()
		}
		return nil, nil
	}
	f := d.Fields[name]
	if f == nil {
		return nil, nil // @keys are names: short
	}
	raw, _ := declared.Unescape(name)
	return f.Type, schema.Properties()[raw]
}

// bounded tells whether the schema itself limits a size.
func bounded(s common.Schema) bool {
	return s.MaxItems() != nil || s.MaxProperties() != nil || s.MaxLength() != nil || s.Format() != "" || len(s.Enum()) > 0 ||
		!slices.Contains([]string{"", "array", "object", "string"}, s.Type())
}
