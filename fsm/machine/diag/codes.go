package diag

// Code is what all findings of one code have in common.
type Code struct {
	// Title says in a few words what is wrong.
	Title string
	// Severity is that of its findings.
	Severity Severity
}

// Codes are all codes that a finding may have; they never change their meaning.
// Each has a page docs/lint/CODE.md.
var Codes = map[string]Code{
	"PG000": {"the file cannot be read, or a value in it has no meaning", SeverityError},
	"PG001": {"a phase that is named does not exist", SeverityError},
	"PG002": {"a phase is unreachable", SeverityError},
	"PG003": {"a phase is a dead end", SeverityError},
	"PG004": {"an exit is never taken", SeverityError},
	"PG005": {"an action, guard, effect or parameter is not known, or a parameter is of the wrong type", SeverityError},
	"PG006": {"an expression does not compile", SeverityError},
	"PG007": {"a guard is not a boolean", SeverityError},
	"PG008": {"a phase does not say what a deletion does", SeverityError},
	"PG009": {"the object could never be deleted", SeverityError},
	"PG010": {"a phase could sleep for ever", SeverityError},
	"PG011": {"an effect is acquired and not released, or released and never acquired", SeverityError},
	"PG012": {"a way leads back from a point of no return", SeverityError},
	"PG013": {"retries give up while an effect is held", SeverityError},
	"PG014": {"another object's content decides in a deletion phase", SeverityError},
	"PG015": {"a name is reserved, or cannot be shown", SeverityError},
	"PG016": {"an expression could cost more than the API server allows", SeverityError},
	"PG017": {"effects or deletion phases, but no finalizer", SeverityError},
	"PG018": {"a manifest does not fit its kind", SeverityError},
	"PG019": {"the kind is not there as the machine needs it", SeverityError},
	"PG020": {"an effect is released while a Job may run that was started under it", SeverityError},
	"PG021": {"an effect is taken again with values that are found anew", SeverityError},
	"PG022": {"a role is not known, missing or given twice", SeverityError},
	"PG023": {"a state value may be read before it is assigned", SeverityError},
	"PG024": {"a reference to a secret has no meaning, or a secret would be readable", SeverityError},
	"PG101": {"a progressing phase has no timeout", SeverityWarning},
	"PG102": {"two guards of one phase can be true together", SeverityWarning},
	"PG103": {"a hot loop: a cycle of phases that never waits", SeverityWarning},
	"PG104": {"objects of the older revision could not go on with this one", SeverityError},
	"PG105": {"the objects cannot show where they stand", SeverityWarning},
	"PG106": {"a step reads what it changes itself, or a later step of its phase", SeverityWarning},
	"PG107": {"a phase leads to itself", SeverityError},
	"PG108": {"nothing reads a state value", SeverityWarning},
	"PG109": {"a deletion phase reads a field that may be missing", SeverityWarning},
	"PG201": {"an invariant does not hold", SeverityError},
}
