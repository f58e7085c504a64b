package machinestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// Objects calls a function with the state of each object that a machine drives. An error
// means that not all were seen.
type Objects func(ctx context.Context, machine string, each func(*v1alpha1.MachineState)) error

const (
	// objectsTimeout is how long the states of all objects may take to be read.
	objectsTimeout = 2 * time.Minute
	// maxExamples is how many objects a finding names, maxUnfit how many findings there are.
	maxExamples = 3
	maxUnfit    = 10
)

// unfit are the objects that cannot go on with a machine, for one reason.
type unfit struct {
	reason   string
	examples []string
	count    int
}

// unfit reads the states of a machine's objects; nil where each can go on with it. One that
// could not go on with the machine before does not count.
func (s *Store) unfit(ctx context.Context, m, before *fsm.Machine) ([]*unfit, error) {
	return s.ask(ctx, m.Name(), func(st v1alpha1.MachineStatus) error {
		err := m.Adopts(st)
		if err == nil || before != nil && before.Adopts(st) != nil {
			return nil
		}
		return err
	})
}

// ask collects the objects of a machine of whose states a function says that something is wrong.
func (s *Store) ask(ctx context.Context, machine string, wrong func(v1alpha1.MachineStatus) error) ([]*unfit, error) {
	if s.Objects == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, objectsTimeout)
	defer cancel()
	if s.Looked != nil { // many objects, and an API server that does not answer, take longer than a probe waits
		go wait.UntilWithContext(ctx, func(context.Context) { s.Looked() }, lookEvery)
	}
	var all []*unfit
	err := s.Objects(ctx, machine, func(state *v1alpha1.MachineState) {
		err := wrong(state.Status.MachineStatus)
		if err == nil {
			return
		}
		i := slices.IndexFunc(all, func(u *unfit) bool { return u.reason == err.Error() })
		if i < 0 && len(all) == maxUnfit {
			return
		}
		if i < 0 {
			i, all = len(all), append(all, &unfit{reason: err.Error()})
		}
		u, o := all[i], state.Spec.Object
		if u.count++; u.count <= maxExamples {
			u.examples = append(u.examples, o.Kind+" "+strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
		}
	})
	return all, err
}

// objects names some of them.
func (u *unfit) objects() string {
	objects := strings.Join(u.examples, ", ")
	if more := u.count - len(u.examples); more > 0 {
		objects += fmt.Sprintf(" and %d more", more)
	}
	return objects
}

func (u *unfit) finding(m *fsm.Machine) diag.Diagnostic {
	return m.Definition().Finding("spec.upgrade", "PG104", fmt.Sprintf("%s cannot go on with it: %s", u.objects(), u.reason),
		"or change the file once the objects have come to an end")
}

// adopt keeps the machine in force where an object could not go on with the next one. The
// error means that nothing can be said now.
func (s *Store) adopt(ctx context.Context, last verdict, next *verdict) error {
	for _, name := range slices.Sorted(maps.Keys(next.inForce)) {
		m, before := next.inForce[name], last.inForce[name]
		if before == nil || m.Revision() == before.Revision() || !s.runs(name) {
			continue
		}
		all, err := s.unfit(ctx, m, before)
		if err != nil {
			return fmt.Errorf("read the states of the objects of machine %s: %w", name, err)
		}
		if len(all) == 0 {
			continue
		}
		refused := refusal{file: m.File(), machine: name}
		for _, u := range all {
			refused.findings = append(refused.findings, u.finding(m))
		}
		next.inForce[name], next.warnings[name] = before, nil
		next.refused = append(next.refused, refused)
	}
	return nil
}

// warn tells of objects that cannot go on with a machine in force. When the program starts
// there is no other that could.
func (s *Store) warn(ctx context.Context) {
	for _, name := range s.Names() {
		m := s.verdict().inForce[name]
		if !s.runs(name) {
			continue
		}
		all, err := s.unfit(ctx, m, nil)
		if err != nil {
			s.Log.Info("cannot find out whether the objects of a machine can continue with it", "machine", name, "error", err.Error())
		}
		for _, u := range all {
			s.Log.Info("objects cannot go on with the machine in force", "machine", name, "finding", u.finding(m).String())
		}
	}
}

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
