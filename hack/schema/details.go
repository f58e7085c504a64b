package main

import (
	"encoding/json"

	"github.com/invopop/jsonschema"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// What a schema refuses, the program refuses too (but for an empty text where
// there need not be one); the program refuses more. The tests compare them.
const (
	duration   = `^\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	identifier = `^[A-Za-z][A-Za-z0-9_]{0,62}$`
	phaseName  = `^[A-Za-z][A-Za-z0-9_-]{0,62}$`
	reason     = `^[A-Za-z]([A-Za-z0-9_]{0,126}[A-Za-z0-9])?$`
	kindName   = `^[A-Z][A-Za-z0-9]*$`
	pluralName = `^[a-z][a-z0-9]*$`
)

// durationOrExpr is a duration, or an expression that comes to one.
const durationOrExpr = `^(\$\{(.|\n)*\}|\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

type detail func(*jsonschema.Schema)

// details are by type, or type and field.
var details = map[string]detail{
	"Machine.apiVersion": constant("phasegate.dev/v1alpha1"),
	"Machine.kind":       constant("Machine"),

	"MachineSpec.initial":   pattern(phaseName),
	"MachineSpec.effects":   atMost(32),
	"MachineSpec.requests":  atMost(16),
	"MachineSpec":           onDeleteInPhases,
	"MachineSpec.stepLists": func(s *jsonschema.Schema) { s.PropertyNames = &jsonschema.Schema{Pattern: identifier} },
	"MachineSpec.failure":   constant("undo"),
	"MachineSpec.deletion":  constant("undo"),
	"MachineSpec.status":    names(`^[A-Za-z][A-Za-z0-9]{0,62}$`, 32),
	"Defaults.poll":         pattern(duration),
	"Named.name":            pattern(identifier),
	"Effect.name":           pattern(identifier),
	"Effect.showAs":         pattern(phaseName),
	"Request.name":          pattern(identifier),

	"Phase.name":     pattern(phaseName),
	"Phase.showAs":   pattern(phaseName),
	"Phase.kind":     oneOf(string(v1alpha1.PhaseProgressing), string(v1alpha1.PhaseWaiting), string(v1alpha1.PhaseSteady)),
	"Phase.terminal": oneOf(string(v1alpha1.PhaseSuccess), string(v1alpha1.PhaseFailure)),
	"Phase.poll":     pattern(duration),

	"ForEach.toleratedFailures": between("0", "100"),
	"Step.consecutive":          between("2", "100"),
	"Step.timeout":              pattern(durationOrExpr),
	"Step.max":                  pattern(duration),
	"Retry.nonRetryable":        items(oneOf("Conflict", "Forbidden", "NotFound", "Invalid", "Timeout", "Throttled", "Unavailable")),
	"Timeout.max":               pattern(duration),

	"Require.else":       pattern(phaseName),
	"Require.reason":     pattern(reason),
	"Exit.to":            pattern(phaseName),
	"Exit.reason":        pattern(reason),
	"Step":               exactlyOne("action", "undo", "wait", "use"),
	"Step.use":           pattern(identifier),
	"Step.undo":          pattern(identifier),
	"Step.wait":          pattern(durationOrExpr),
	"Step.poll":          pattern(duration),
	"Timeout":            exactlyOne("to", "stalled"),
	"Timeout.after":      pattern(durationOrExpr),
	"Timeout.to":         pattern(phaseName),
	"Timeout.stalled":    pattern(reason),
	"Timeout.reason":     pattern(reason),
	"OnDelete":           exactlyOne("to", "hold", "immediate"),
	"OnDelete.to":        pattern(phaseName),
	"OnDelete.immediate": constant(true),
	"Retry":              toNeedsAnEnd,
	"Retry.base":         pattern(duration),
	"Retry.max":          pattern(duration),
	"Retry.factor":       between("1", ""),
	"Retry.jitter":       between("0", "1"),
	"Retry.attempts":     between("0", "2147483647"),
	"Retry.to":           pattern(phaseName),
	"OnError.is":         oneOf("Terminal", "Conflict", "Forbidden", "NotFound", "Invalid", "Timeout", "Throttled", "Unavailable", "*"),
	"OnError.to":         pattern(phaseName),
	"OnError.reason":     pattern(reason),

	"Upgrade.phaseMap":   values(pattern(phaseName)),
	"Upgrade.effectMap":  values(pattern(identifier)),
	"Upgrade.requestMap": values(pattern(identifier)),
	"Recovery.to":        pattern(phaseName),
	"Recovery.holds":     items(pattern(identifier)),
	"Recovery.reason":    pattern(reason),

	"KindRegistry.apiVersion": constant("phasegate.dev/v1alpha1"),
	"KindRegistry.kind":       constant("KindRegistry"),
	"RegistryKind.kind":       pattern(kindName),
	"RegistryKind.plural":     pattern(pluralName),
	"RegistryKind.scope":      oneOf("Cluster", "Namespaced"),
	"RegistryKind.order":      oneOf("creation"),
	"RegistryKind.after":      items(pattern(kindName)),
	"RegistryKind.converters": items(oneOf("blockAffinityDeleted", "dropEmptyEnums", "emptyAggregation", "emptyAssignIPs", "emptyAssignmentMode", "emptyNextHop",
		"ipamConfigDefaults", "kubePolicyTypes", "policyName", "policyTypes", "tierDefaults")),
	"RegistryV1Names.kind":              pattern(kindName),
	"RegistryV1Names.plural":            pattern(pluralName),
	"RegistryList.pageSize":             between("0", ""),
	"RegistryCompare.admissionDefaults": items(oneOf("tierLabel")),
}

func constant(v any) detail { return func(s *jsonschema.Schema) { s.Const, s.MinLength = v, nil } }

func pattern(p string) detail { return func(s *jsonschema.Schema) { s.Pattern, s.MinLength = p, nil } }

func oneOf(values ...any) detail {
	return func(s *jsonschema.Schema) { s.Enum, s.MinLength = values, nil }
}

func atMost(n uint64) detail { return func(s *jsonschema.Schema) { s.MaxItems = &n } }

func items(d detail) detail { return func(s *jsonschema.Schema) { d(s.Items) } }

// values are those of a map.
func values(d detail) detail { return func(s *jsonschema.Schema) { d(s.AdditionalProperties) } }

// names are those of a map, and how many there are at most.
func names(p string, most uint64) detail {
	return func(s *jsonschema.Schema) {
		s.PropertyNames, s.MaxProperties = &jsonschema.Schema{Pattern: p}, &most
	}
}

func between(least, most json.Number) detail {
	return func(s *jsonschema.Schema) { s.Minimum, s.Maximum = least, most }
}

// exactlyOne of the fields must be there.
func exactlyOne(fields ...string) detail {
	return func(s *jsonschema.Schema) {
		for _, field := range fields {
			s.OneOf = append(s.OneOf, &jsonschema.Schema{Title: field, Required: []string{field}})
		}
	}
}

func toNeedsAnEnd(s *jsonschema.Schema) {
	s.DependentSchemas = map[string]*jsonschema.Schema{"to": {AnyOf: []*jsonschema.Schema{
		{Title: "attempts", Required: []string{"attempts"}},
		{Title: "nonRetryable", Required: []string{"nonRetryable"}},
	}}}
}

// onDeleteInPhases: each phase says what a deletion does, unless the machine does.
func onDeleteInPhases(s *jsonschema.Schema) {
	deletion := jsonschema.NewProperties()
	deletion.Set("deletion", &jsonschema.Schema{Const: true})
	phases := jsonschema.NewProperties()
	phases.Set("phases", &jsonschema.Schema{Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Title: "onDelete", Required: []string{"onDelete"}},
		{Title: "deletion: true", Required: []string{"deletion"}, Properties: deletion},
	}}})
	s.AnyOf = []*jsonschema.Schema{
		{Title: "deletion: undo", Required: []string{"deletion"}},
		{Title: "onDelete in each phase", Properties: phases},
	}
}
