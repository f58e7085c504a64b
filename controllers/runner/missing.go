package runner

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
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
