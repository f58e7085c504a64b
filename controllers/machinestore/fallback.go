package machinestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// fallBack lets compiled-in machines take the place of files that were refused when the
// program started, where no object is under way that another machine has driven: what that
// machine had in mind for it, a gate that somebody put in, say, is not known here. It may be
// called any number of times; where the objects cannot be asked, nothing changes.
func (s *Store) fallBack(ctx context.Context) {
	last := s.verdict()
	next := last
	next.inForce, next.waiting = maps.Clone(last.inForce), maps.Clone(last.waiting)
	for _, name := range slices.Sorted(maps.Keys(last.waiting)) {
		m := s.shipped[name]
		if m == nil || !s.runs(name) {
			continue
		}
		why, err := s.underWay(ctx, m)
		switch {
		case err != nil:
			next.waiting[name] = fmt.Sprintf("the objects cannot be asked whether the compiled-in one may take its place: %v", err)
		case why != "":
			next.waiting[name] = why
		default:
			delete(next.waiting, name)
			next.inForce[name] = m
			s.metrics.reloads.WithLabelValues(name, "compiled-in").Inc()
		}
	}
	if !maps.Equal(next.waiting, last.waiting) {
		s.publish(last, next)
	}
}

// underWay says which objects keep a compiled-in machine from taking the place of another
// one; empty where none does.
func (s *Store) underWay(ctx context.Context, m *fsm.Machine) (string, error) {
	all, err := s.ask(ctx, m.Name(), func(st v1alpha1.MachineStatus) error {
		if err := m.Adopts(st); err != nil || st.Revision == m.Revision() || m.Rests(st.Phase) {
			return err
		}
		return fmt.Errorf("it is under way in phase %s with revision %s, which is another one", st.Phase, st.Revision)
	})
	if err != nil || len(all) == 0 {
		return "", err
	}
	notes := make([]string, len(all))
	for i, u := range all {
		notes[i] = u.objects() + " cannot go on with the compiled-in one: " + u.reason
	}
	return strings.Join(notes, "; "), nil
}
