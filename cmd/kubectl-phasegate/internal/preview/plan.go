package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Plan is what a migration would do.
type Plan struct {
	Migration string     `json:"migration,omitempty"`
	Objects   int64      `json:"objects"`
	Kinds     []PlanKind `json:"kinds"`
	// Rejected are the objects that could not be copied as they are.
	Rejected []resources.Problem `json:"rejected"`
	// Skipped are the objects that no copy would be made of.
	Skipped []copier.Skipped `json:"skipped"`
	// Filled are fields that v1 leaves to its readers, or to admission. The copies say what those made of it.
	Filled []copier.Filled `json:"filled"`
	// OnlyInV3 are objects that v3 has and v1 does not have.
	OnlyInV3  []resources.Problem `json:"onlyInV3"`
	Conflicts Conflicts           `json:"conflicts"`
	// Dependents are objects outside Calico whose owner references come off for a moment;
	// Unseen are the resources that may not be looked into.
	Dependents       []string `json:"dependents"`
	DependentsUnseen []string `json:"dependentsUnseen,omitempty"`
	// Unasked says why it is not known what v3's admission would refuse or change.
	Unasked string `json:"unasked,omitempty"`
	Lock    Lock   `json:"lock"`
	// Blockers keep it from starting, Warnings do not.
	Blockers []string `json:"blockers"`
	Warnings []string `json:"warnings"`
	// Store says what the copies add to etcd; empty where that is among the others.
	Store string `json:"store,omitempty"`
}

// PlanKind counts one kind.
type PlanKind struct {
	Kind     string `json:"kind"`
	Copied   int64  `json:"copied"`
	Skipped  int64  `json:"skipped"`
	Rejected int64  `json:"rejected"`
}

// Lock is how long v1 would be locked.
type Lock struct {
	Seconds int32 `json:"expectedSeconds"`
	// AtLeast says that the copy itself comes on top.
	AtLeast bool   `json:"atLeast,omitempty"`
	Basis   string `json:"basis"`
}

// Copies fills in what would be copied.
func (p *Plan) Copies(plan copier.Plan) {
	p.Objects, p.Kinds, p.Rejected, p.Skipped, p.OnlyInV3 = plan.Total, []PlanKind{}, listed(plan.Problems), []copier.Skipped{}, []resources.Problem{}
	for _, k := range plan.Kinds {
		p.Kinds = append(p.Kinds, PlanKind{Kind: k.Kind, Copied: k.Planned, Rejected: k.Rejected})
	}
	p.Filled, p.Unasked = listed(plan.Filled), plan.Unasked
	p.Skips(plan.Skipped, 0)
}

// Compared fills in what both sides have, and what v3 alone has; what is equal is among the Copied so far.
func (p *Plan) Compared(compared copier.Comparison) {
	p.Skips(compared.Equal, 1)
	p.OnlyInV3 = listed(compared.OnlyInV3)
}

// listed is a list also in JSON where there is nothing in it.
func listed[T any](all []T) []T { return append([]T{}, all...) }

// Skips adds objects that no copy would be made of; counted is 1 where they are among the Copied so far.
func (p *Plan) Skips(all []copier.Skipped, counted int64) {
	p.Skipped = append(p.Skipped, all...)
	for _, s := range all {
		if i := slices.IndexFunc(p.Kinds, func(k PlanKind) bool { return k.Kind == s.Kind }); i >= 0 {
			p.Kinds[i].Skipped++
			p.Kinds[i].Copied -= counted
		}
	}
}

// Checked fills in what the migration's own checks say.
func (p *Plan) Checked(answers []check.Answer) error {
	blockers, warnings, err := check.Split(answers)
	p.Blockers, p.Warnings = listed(blockers), listed(warnings)
	for _, a := range answers {
		if a.ID == datastoremigration.StoreSpaceCheck && len(a.Findings) == 1 && a.Findings[0].Level == check.Info {
			p.Store = a.Findings[0].Message
		}
	}
	return err
}

// Expect says how long v1 would be locked: what the migration has found out, if it has copied
// ahead; else what is usual for so many objects. delay is that of webhooks.
func (p *Plan) Expect(ahead *migrationv1.CopyAhead, answers []check.Answer, delay time.Duration) {
	refused := slices.ContainsFunc(answers, func(a check.Answer) bool { return a.ID == datastoremigration.CopyAheadCheck && len(a.Findings) > 0 })
	if ahead != nil {
		refused = ahead.State == migrationv1.CopyAheadRefused
		if ahead.ExpectedLockSeconds > 0 && !refused {
			p.Lock = Lock{Seconds: ahead.ExpectedLockSeconds, Basis: "measured by the migration, " + ahead.Message}
			return
		}
	}
	seconds, basis := datastoremigration.ExpectedLock(p.Objects, datastoremigration.OwnersPerSecond, 0, delay)
	p.Lock = Lock{Seconds: seconds, AtLeast: refused, Basis: basis}
	if refused {
		p.Lock.Basis += fmt.Sprintf("; all %d objects are copied under the lock, too", p.Objects)
	}
}

// Ready tells that nothing keeps the migration from starting and ending.
func (p *Plan) Ready() bool {
	return len(p.Rejected)+len(p.Blockers)+len(p.Conflicts.Conflicts) == 0
}

// Text writes it for people; wide has the kinds without objects, too.
func (p *Plan) Text(to io.Writer, wide bool) error {
	t := tabwriter.NewWriter(to, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "KIND\tCOPIED\tSKIPPED\tREJECTED")
	for _, k := range p.Kinds {
		if wide || k.Copied+k.Skipped+k.Rejected > 0 {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", k.Kind, k.Copied, k.Skipped, k.Rejected)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(to, "\n"+p.findings(wide)+p.verdict())
	return err
}

var whySkipped = map[copier.Why]string{
	copier.SkippedTerminating: "it is being deleted in v1, and nothing there needs it",
	copier.SkippedEqual:       "v3 has it already, with the same content",
}

// lines name all objects in a wide text, else some, with the number of the others.
func lines[T any](p *Plan, all []T, wide bool, are string, line func(T) string) string {
	var b strings.Builder
	for i, one := range all {
		if i == someOf && !wide {
			fmt.Fprintf(&b, "‼ and %d more are %s: kubectl phasegate plan %s\n", len(all)-i, are, strings.TrimSpace(p.Migration+" -o wide"))
			break
		}
		b.WriteString(line(one))
	}
	return b.String()
}

func (p *Plan) findings(wide bool) string {
	var b strings.Builder
	for _, r := range p.Rejected {
		fmt.Fprintf(&b, "× %s %s would be rejected (%s): %s\n", r.Kind, r.Object(), r.Reason, r.Message)
		if r.Remedy != "" {
			fmt.Fprintf(&b, "    %s\n", r.Remedy)
		}
	}
	b.WriteString(lines(p, p.Skipped, wide, "skipped", func(s copier.Skipped) string {
		return fmt.Sprintf("‼ %s %s would be skipped: %s\n", s.Kind, strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"), whySkipped[s.Why])
	}))
	b.WriteString(lines(p, p.OnlyInV3, wide, "in v3 only", func(o resources.Problem) string {
		return fmt.Sprintf("‼ %s %s %s\n    %s\n", o.Kind, o.Object(), o.Message, o.Remedy)
	}))
	for _, f := range p.Filled {
		b.WriteString(filledLine(f))
	}
	for _, text := range p.Blockers {
		fmt.Fprintf(&b, "× %s\n", text)
	}
	for _, text := range p.Warnings {
		fmt.Fprintf(&b, "‼ %s\n", text)
	}
	if p.Unasked != "" {
		fmt.Fprintf(&b, "‼ what v3's admission policies and webhooks would refuse or change is unknown: %s; the migration asks them when it copies ahead\n", p.Unasked)
	}
	if p.Store != "" {
		fmt.Fprintf(&b, "✓ %s\n", p.Store)
	}
	switch n := len(p.Conflicts.Conflicts); {
	case p.Conflicts.Unseen != "":
		fmt.Fprintf(&b, "‼ conflicts cannot be seen yet, nor what v3 alone has: %s; the migration looks for them before it locks anything\n", p.Conflicts.Unseen)
	case n > 0:
		fmt.Fprintf(&b, "× %s: %s\n", statusview.Count(n, "conflict"), strings.TrimSpace("kubectl phasegate conflicts "+p.Migration))
	default:
		b.WriteString("✓ no conflicts\n")
	}
	if n := len(p.Dependents); n > 0 {
		fmt.Fprintf(&b, "  %s outside Calico would lose their owner reference for a moment, so that the garbage collector keeps them (Helm: controllers.datastoremigration.dependents.enabled=true): %s\n", statusview.Count(n, "object"), some(p.Dependents))
	}
	if len(p.DependentsUnseen) > 0 {
		fmt.Fprintf(&b, "‼ you may not look for such objects in %s\n", some(p.DependentsUnseen))
	}
	return b.String()
}

func filledLine(f copier.Filled) string {
	why := "Calico reads it so"
	if f.By == copier.ByAdmission {
		why = "an admission policy or a webhook fills it in"
	}
	return fmt.Sprintf("  %s: %s of %s would be %s in v3: v1 does not say so, but %s\n", f.Kind, f.Field, statusview.Count(f.Objects, "object"), f.Value, why)
}

const someOf = 5

func some(list []string) string {
	if len(list) <= someOf {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:someOf], ", "), len(list)-someOf)
}

func (p *Plan) verdict() string {
	lock := "about"
	if p.Lock.AtLeast {
		lock = "at least"
	}
	text := fmt.Sprintf("\n%s to copy. v1 would be locked for %s %ds: %s.\n", statusview.Count(p.Objects, "object"), lock, p.Lock.Seconds, p.Lock.Basis)
	if p.Ready() {
		return text + "Nothing was changed. Nothing blocks the migration.\n"
	}
	return text + "Nothing was changed. Fix what is marked × first.\n"
}
