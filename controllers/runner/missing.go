package runner

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// askAgain is how long an answer about rights is used: many objects fail for want of one.
const askAgain = time.Minute

// askFor is how long the API server may take to say what is lacking.
const askFor = 30 * time.Second

// missing remembers which rights the account lacks.
type missing struct {
	mu sync.Mutex
	// answers are by namespace and revision of the machine.
	answers map[[2]string]lacking
	// asking joins those who want to know the same.
	asking singleflight.Group
}

type lacking struct {
	text string
	at   time.Time
}

// remember answers what was found last, while it is young, and else what ask finds. Nobody waits longer than for the
// own question, or than its context.
func (m *missing) remember(ctx context.Context, key [2]string, now time.Time, ask func(context.Context) (string, error)) (string, error) {
	if text, known := m.known(key, now); known {
		return text, nil
	}
	answer := m.asking.DoChan(key[0]+"/"+key[1], func() (any, error) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor) // others may wait for it
		defer cancel()
		text, err := ask(asking)
		if err == nil {
			m.learn(key, now, text)
		}
		return text, err
	})
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-answer:
		text, _ := got.Val.(string)
		return text, got.Err
	}
}

func (m *missing) known(key [2]string, now time.Time) (text string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, asked := m.answers[key]
	return last.text, asked && now.Sub(last.at) < askAgain
}

func (m *missing) learn(key [2]string, now time.Time, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.answers, func(_ [2]string, answer lacking) bool { return now.Sub(answer.at) >= askAgain })
	if m.answers == nil {
		m.answers = map[[2]string]lacking{}
	}
	m.answers[key] = lacking{text, now}
}

// withMissing adds to the error of an action for want of a right all rights that the machine
// lacks: granted one by one, they would be met phase by phase.
func (r *Reconciler[T]) withMissing(ctx context.Context, p *pass[T], err error) error {
	if err == nil || !apierrors.NotAllowed(err) {
		return err
	}
	namespace := p.stored.GetNamespace()
	text, failed := r.missing.remember(ctx, [2]string{namespace, p.machine.Revision()}, r.Clock.Now(), func(ctx context.Context) (string, error) {
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
