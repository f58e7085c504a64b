package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// ErrNotNow is wrapped by the errors that say why a request would do nothing:
// nothing was written.
var ErrNotNow = errors.New("nothing was written")

// Ask is a one-shot request for one object.
type Ask struct {
	Client  client.Client
	Machine *fsm.Machine
	Object  types.NamespacedName
	// Request is its name in the machine file.
	Request string
	// Params are laid into the annotations that the request's parameters read.
	Params map[string]string
	// Force asks even where the request opens nothing, and again where it is
	// pending already.
	Force bool
	// Now is the clock.
	Now func() time.Time
}

// Do writes the request's annotation with a new token and answers the token. It
// writes nothing, and answers the old token, where the same request is pending
// already: a second call after a lost answer does not ask twice. A write of
// somebody else in between is not overwritten: the object is read again.
func (a Ask) Do(ctx context.Context) (token string, err error) {
	q, err := a.find()
	if err != nil {
		return "", err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := Get(ctx, a.Client, a.Machine, a.Object)
		if err == nil {
			token, err = a.write(ctx, q, o)
		}
		return err
	})
	return token, err
}

// find answers the request, if an annotation can ask for it.
func (a Ask) find() (fsm.Request, error) {
	all := a.Machine.Requests()
	i := slices.IndexFunc(all, func(q fsm.Request) bool { return q.Name == a.Request })
	if i < 0 {
		var names []string
		for _, q := range all {
			names = append(names, q.Name)
		}
		return fsm.Request{}, fmt.Errorf("machine %s has no request %q: it has [%s]; see spec.requests in %s",
			a.Machine.Name(), a.Request, strings.Join(names, ", "), a.Machine.File())
	}
	q := all[i]
	if q.Annotation == "" {
		return q, fmt.Errorf("the token of request %s in %s does not come from an annotation: set what it reads by hand", q.Name, a.Machine.File())
	}
	for name := range a.Params {
		if q.Params[name] == "" {
			return q, fmt.Errorf("request %s has no parameter %q that is read from an annotation: see spec.requests of the machine file", q.Name, name)
		}
	}
	return q, nil
}

func (a Ask) write(ctx context.Context, q fsm.Request, o Object) (string, error) {
	u := &unstructured.Unstructured{Object: o.Content}
	if !a.Force {
		if !slices.Contains(q.Phases, o.Machine.Phase) {
			return "", fmt.Errorf("%w: %s is in phase %q, where request %s opens nothing (it does in: %s): wait for one of these phases, or use --force%s",
				ErrNotNow, o, o.Machine.Phase, q.Name, strings.Join(q.Phases, ", "), behind(o.Note))
		}
		if old := u.GetAnnotations()[q.Annotation]; a.Machine.Accepts(q.Name, old, o.Machine, u.Object) {
			return old, nil
		}
	}
	token, takes := Token(a.Machine, q, o.Machine, u.Object, a.Now())
	if !takes {
		return "", fmt.Errorf("%w: request %s takes neither a time nor a time with a suffix as its token: its `valid` in %s refuses both; annotate %s by hand",
			ErrNotNow, q.Name, a.Machine.File(), q.Annotation)
	}
	asked := labels.Set{q.Annotation: token}
	for name, value := range a.Params {
		asked[q.Params[name]] = value
	}
	return token, patch.MutateAndPatchSpec(ctx, a.Client, u, func(u *unstructured.Unstructured) {
		u.SetAnnotations(labels.Merge(u.GetAnnotations(), asked))
	})
}

// Token is one that a request takes: the time, and a suffix for two in the same second. Some
// machines take nothing but a time, and only a later one: then it is a fraction of the second
// that tells two apart. It is false where the request takes neither.
func Token(m *fsm.Machine, q fsm.Request, st v1alpha1.MachineStatus, object map[string]any, at time.Time) (string, bool) {
	now := at.UTC().Format(time.RFC3339)
	for _, token := range []string{now + "-" + rand.String(5), now, at.UTC().Format(time.RFC3339Nano)} {
		if m.Accepts(q.Name, token, st, object) {
			return token, true
		}
	}
	return "", false
}

const follow = 500 * time.Millisecond

// Wait returns once the token was acted on. It ends early, with an error that
// says why, when the object is gone or somebody asks with another token, and
// when the context ends, with what the object waits for.
func (a Ask) Wait(ctx context.Context, token string) (Object, error) {
	q, err := a.find()
	if err != nil {
		return Object{}, err
	}
	var last Object
	var trouble error
	err = wait.PollUntilContextCancel(ctx, follow, true, func(ctx context.Context) (bool, error) {
		o, err := Get(ctx, a.Client, a.Machine, a.Object)
		if err != nil {
			// The server may be away for a moment; an object does not come back.
			if apierrs.IsNotFound(err) || apierrs.IsForbidden(err) {
				return false, err
			}
			trouble = err
			return false, nil
		}
		last = o
		return actedOn(o, q, token)
	})
	if err != nil && trouble != nil && last.Name == "" {
		return last, fmt.Errorf("request %s: whether it was acted on is unknown: %w", q.Name, trouble)
	}
	if err != nil && ctx.Err() != nil {
		return last, fmt.Errorf("request %s was not acted on: %s is in phase %s%s; wait longer with --timeout, or see its status%s", q.Name, last, last.Machine.Phase, waitsFor(last.Machine.Blocked), behind(last.Note))
	}
	return last, err
}

// actedOn tells whether the token of a request was acted on, whatever came earlier. The error says that it never will be.
func actedOn(o Object, q fsm.Request, token string) (bool, error) {
	if slices.ContainsFunc(o.Machine.Requests, func(r v1alpha1.RequestStatus) bool { return r.Name == q.Name && r.Token == token }) {
		return true, nil
	}
	u := unstructured.Unstructured{Object: o.Content}
	if now := u.GetAnnotations()[q.Annotation]; now != token {
		return false, fmt.Errorf("the request was replaced: annotation %s is now %q, not %q: see who wrote it, and wait for that one", q.Annotation, now, token)
	}
	return false, nil
}

func behind(note string) string {
	if note == "" {
		return ""
	}
	return "; " + note
}

func waitsFor(blocked []v1alpha1.Blocked) string {
	if len(blocked) == 0 {
		return ""
	}
	b := blocked[0]
	return fmt.Sprintf(", which waits for %s (%s)", b.Guard, b.Value)
}
