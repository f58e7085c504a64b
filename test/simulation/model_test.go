package simulation

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// model stands for the actions of a controller of its own: of what they do in a cluster
// there is one bit for each effect. The built-in actions are the real ones.
type model struct {
	s *scene
	// taken and kept are effects, by the action that takes them: people rename effects.
	taken, kept map[string]bool
	// ready is when the workload of a server is.
	ready time.Time
	// door: the side door of a migration can be opened.
	door bool
}

func newModel(s *scene) *model {
	return &model{s: s, taken: map[string]bool{}, kept: map[string]bool{}, door: s.chance.IntN(2) == 0}
}

// modelled replaces the work of a program.
func modelled[T runner.Object[T]](s *scene, p *runner.Program[T]) *runner.Program[T] {
	genuine := builtin.Specs()
	for name, a := range p.Actions {
		if _, is := genuine[name]; is {
			continue
		}
		a.Do = func(_ context.Context, scope *runner.Scope[T]) (map[string]any, error) {
			out, err := s.model.act(name, a.ActionSpec)
			if dm, is := any(scope.Object).(*migrationv1.DatastoreMigration); is && name == "LockV1" && err == nil && dm.Status.Lock == nil {
				deadline := metav1.NewTime(s.clock.Now().Add(30 * time.Minute))
				scope.Report(func(o T) {
					any(o).(*migrationv1.DatastoreMigration).Status.Lock = &migrationv1.Lock{Deadline: &deadline}
				})
			}
			return out, err
		}
		p.Actions[name] = a
	}
	for name, g := range p.Guards {
		g.Open = func(context.Context, *fsm.Machine, T) (bool, string, error) { return true, "", nil }
		p.Guards[name] = g
	}
	p.Stored, p.Gone = nil, nil
	return p
}

func (m *model) respecified() { m.ready = m.s.clock.Now().Add(20 * time.Second) }

// act is an action of the program.
func (m *model) act(name string, spec fsm.ActionSpec) (map[string]any, error) {
	s := m.s
	s.tell("act %s", name)
	if s.clock.Now().Before(s.outage) {
		return nil, apierrors.NewServiceUnavailable("everything is away")
	}
	next, refused := s.refused(fails, waits, gives, finds)
	refused = refused && next.do != finds
	if !refused || next.pick%2 == 0 { // or it does its work and says that it failed
		m.does(name)
	}
	if refused {
		return nil, next.errorOf()
	}
	out := m.outputs(name, spec)
	if next.do == finds && name != "ObserveWorkload" {
		out = something(spec)
	}
	return out, nil
}

func (m *model) does(name string) {
	for _, e := range m.s.file.inForce.Definition().Spec.Effects {
		switch name {
		case e.Acquire:
			m.taken[name] = true
		case e.Release:
			if m.kept[e.Acquire] {
				m.s.fail(ledger, "%s releases %s, which is kept", name, e.Name)
			}
			delete(m.taken, e.Acquire)
		}
	}
	if name == "StampPodTemplates" {
		m.respecified()
	}
}

func (m *model) outputs(name string, spec fsm.ActionSpec) map[string]any {
	out := simulate.Zero(spec)
	switch name {
	case "OpenSideDoor":
		out["sideDoor"] = m.door
	case "ObserveWorkload":
		ready := !m.s.clock.Now().Before(m.ready)
		out["wanted"], out["ready"], out["current"], out["waitingFor"] = int64(1), ready, ready, "pods"
	}
	return out
}

// stored compares what is taken with the ledger of the one object that there is.
func (m *model) stored(st *v1alpha1.MachineStatus) {
	by := m.s.file.taken[st.Revision] // a pass ends with the file that it began with
	if by == nil {                    // a planted defect
		by = m.s.file.inForce
	}
	def := by.Definition()
	for _, e := range def.Spec.Effects {
		for _, p := range def.Spec.Phases {
			if p.Name == st.Phase && slices.Contains(p.Keeps, e.Name) {
				m.kept[e.Acquire] = true
			}
		}
		held := slices.ContainsFunc(st.Held, func(h v1alpha1.HeldEffect) bool { return h.Release == e.Release })
		if m.taken[e.Acquire] && !m.kept[e.Acquire] && !held {
			m.s.fail(ledger, "%s was called, and %s is not in the ledger %v", e.Acquire, e.Name, st.HeldNames())
		}
	}
}

// left finds what nobody has released.
func (m *model) left() {
	for name := range m.taken {
		if !m.kept[name] {
			m.s.fail(leak, "what %s took is not released", name)
		}
	}
}
