package runner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// askAgain is how long an answer about rights is used: many objects fail for want of one.
const askAgain = time.Minute

// missing remembers which rights the account lacks.
type missing struct {
	mu sync.Mutex
	// answers are by namespace and revision of the machine.
	answers map[[2]string]lacking
}

type lacking struct {
	text string
	at   time.Time
}

// remember answers what was found last, while it is young, and else what ask finds.
func (m *missing) remember(key [2]string, now time.Time, ask func() (string, error)) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, asked := m.answers[key]; asked && now.Sub(last.at) < askAgain {
		return last.text, nil
	}
	text, err := ask()
	if err != nil {
		return "", err
	}
	for old, answer := range m.answers {
		if now.Sub(answer.at) >= askAgain {
			delete(m.answers, old)
		}
	}
	if m.answers == nil {
		m.answers = map[[2]string]lacking{}
	}
	m.answers[key] = lacking{text, now}
	return text, nil
}

// withMissing adds to the error of an action for want of a right all rights that the machine
// lacks: granted one by one, they would be met phase by phase.
func (r *Reconciler[T]) withMissing(ctx context.Context, p *pass[T], err error) error {
	if err == nil || !apierrors.NotAllowed(err) {
		return err
	}
	namespace := p.stored.GetNamespace()
	text, failed := r.missing.remember([2]string{namespace, p.machine.Revision()}, r.Clock.Now(), func() (string, error) {
		needs := r.Program.needsOfCalls(p.machine, rbac.Served(r.Client.RESTMapper()))
		for i := range needs {
			if needs[i].Namespace == "" {
				needs[i].Namespace = namespace // a role there is enough
			}
		}
		missing, err := rbac.Missing(ctx, r.Client, needs)
		return inWords(missing), err
	})
	if failed != nil || text == "" {
		return err // what is known is said
	}
	return fmt.Errorf("%w; in all, the manager lacks for machine %s: %s; kubectl phasegate scaffold --only=rbac prints the role", err, p.machine.Name(), text)
}

func inWords(missing []rbac.Need) string {
	var parts []string
	for _, n := range rbac.ByTarget(missing) {
		parts = append(parts, fmt.Sprintf("%s (for %s)", n, strings.Join(n.For, ", ")))
	}
	return strings.Join(parts, "; ")
}
