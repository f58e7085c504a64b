package copier

import (
	"context"
	"slices"

	"github.com/phasegate/phasegate/resources"
)

// Comparison is what both sides have.
type Comparison struct {
	Conflicts []Conflict // that a person has to look at
	Equal     []Skipped  // of no migration's making
	OnlyInV3  []resources.Problem
}

// Compare looks at the objects that both sides have, over all kinds. It changes nothing. An object that cannot be
// read or converted is an error, never "no conflict"; of a kind of which v3 has none, v1 is not read.
func (c *Copier) Compare(ctx context.Context) (Comparison, error) {
	s := c.withoutSnapshot().newComparer(true)
	s.onlyPairs = true
	if err := s.run(ctx); err != nil {
		return Comparison{}, err
	}
	s.compareOwners()
	slices.SortFunc(s.adopted, compareSkipped)
	return Comparison{
		Conflicts: slices.DeleteFunc(s.different, func(d Conflict) bool { return !d.ForPerson() }),
		Equal:     s.adopted, OnlyInV3: s.onlyInV3,
	}, nil
}

// Verify compares both sides completely, owners included. It changes nothing, and may be called at any
// time, for a migration that is over as well; what it would have to ask the server about copies that
// admission changed, it asks as dry runs.
func (c *Copier) Verify(ctx context.Context) (Verification, error) {
	s := c.withoutSnapshot().newComparer(true)
	if err := s.run(ctx); err != nil {
		return Verification{}, err
	}
	s.compareOwners()
	v := Verification{Different: s.different, Altered: s.altered, Missing: s.missing, Extra: s.extra, OnlyInV3: s.onlyInV3}
	for _, kind := range c.reg.Kinds() {
		v.Kinds = append(v.Kinds, s.kinds[kind.Name()])
		if slices.ContainsFunc(v.Extra, func(p resources.Problem) bool { return p.Kind == kind.Name() }) {
			if _, err := c.standingV1(ctx, kind); err != nil {
				return Verification{}, err
			}
		}
	}
	return v, nil
}
