package runnertest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/fsm"
)

type (
	errand = migrationv1.DatastoreMigration
	scope  = runner.Scope[*errand]
)

// heard is a testing.TB that keeps what it is told instead of failing.
type heard struct {
	testing.TB
	ctx  context.Context
	said []string
}

func (h *heard) Context() context.Context { return h.ctx }

func (h *heard) Helper()                   {}
func (h *heard) Logf(string, ...any)       {}
func (h *heard) Errorf(f string, a ...any) { h.said = append(h.said, fmt.Sprintf(f, a...)) }
func (h *heard) Fatalf(f string, a ...any) { h.Errorf(f, a...); runtime.Goexit() }
func (h *heard) Fatal(a ...any)            { h.Fatalf("%s", fmt.Sprint(a...)) }
func (h *heard) run(try func(t testing.TB)) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		try(h)
	}()
	<-done
	return h.said
}

// note creates or finds the errand's ConfigMap.
func note(ctx context.Context, c client.Client, s *scope, name string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"for": string(s.Object.UID)}}
	if err := c.Create(ctx, cm); !apierrs.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// The kit is worth what it finds: each defect here is one that a review overlooks.
func TestIdempotentFindsDefects(t *testing.T) {
	calls := 0
	cases := map[string]struct {
		why string
		do  func(ctx context.Context, c client.Client, s *scope) (map[string]any, error)
		// writes are those of the undisturbed run; says is part of the first finding.
		writes []string
		says   string
	}{
		"sound": {
			why: "two writes, each of which may be found done",
			do: func(ctx context.Context, c client.Client, s *scope) (map[string]any, error) {
				s.Report(func(o *errand) { o.Status.Message = "noted" })
				return map[string]any{"name": s.Object.Name}, note(ctx, c, s, s.Object.Name)
			},
			writes: []string{"create ConfigMap", "patch status of DatastoreMigration"},
		},
		"not twice": {
			why: "a create that takes its own earlier work for somebody else's",
			do: func(ctx context.Context, c client.Client, s *scope) (map[string]any, error) {
				return nil, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.Object.Name}})
			},
			says: "already exists",
		},
		"another each time": {
			why: "a name that does not come from what is stored",
			do: func(ctx context.Context, c client.Client, s *scope) (map[string]any, error) {
				calls++
				return nil, note(ctx, c, s, fmt.Sprintf("%s-%d", s.Object.Name, calls))
			},
			says: "calling it again changes objects",
		},
		"counts": {
			why: "an answer that depends on how often it was asked",
			do: func(context.Context, client.Client, *scope) (map[string]any, error) {
				calls++
				return map[string]any{"calls": calls}, nil
			},
			says: "calling it again answers something else",
		},
		"half": {
			why: "the first write is taken as a sign that the second was made: only a crash between them shows it",
			do: func(ctx context.Context, c client.Client, s *scope) (map[string]any, error) {
				first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.Object.Name}}
				if err := c.Create(ctx, first); err != nil {
					if apierrs.IsAlreadyExists(err) {
						return nil, nil
					}
					return nil, err
				}
				return nil, note(ctx, c, s, s.Object.Name+"-second")
			},
			says: "a crash right after write 1 (create ConfigMap) and a call after it lead elsewhere",
		},
		"swallows": {
			why: "an error that is dropped: the write that never came is not made up for",
			do: func(ctx context.Context, c client.Client, s *scope) (map[string]any, error) {
				if s.Object.Annotations["asked"] != "" {
					return nil, nil
				}
				asked := s.Object.DeepCopy()
				metav1.SetMetaDataAnnotation(&asked.ObjectMeta, "asked", "yes")
				err := c.Patch(ctx, asked, client.MergeFrom(s.Object))
				_ = note(ctx, c, s, s.Object.Name)
				return nil, err
			},
			says: "a crash right after write 1 (patch DatastoreMigration) and a call after it lead elsewhere",
		},
		"waits": {
			why:  "an action that waits for ever must not hang the test",
			do:   func(context.Context, client.Client, *scope) (map[string]any, error) { return nil, fsm.Wait("for ever") },
			says: "the action fails: for ever",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := apiruntime.NewScheme()
			for _, add := range []func(*apiruntime.Scheme) error{clientgoscheme.AddToScheme, migrationv1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			world := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).Build()
			n := 0
			var covered runnertest.Covered
			said := (&heard{ctx: t.Context()}).run(func(t testing.TB) {
				covered = runnertest.Idempotent(t, runnertest.Case[*errand]{
					Client: world,
					Setup: func(ctx context.Context, c client.Client) (*errand, error) {
						n++
						obj := &errand{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("errand-%d", n)}}
						return obj, c.Create(ctx, obj)
					},
					Action: func(cl client.Client) runner.Action[*errand] {
						return runner.Action[*errand]{Do: func(ctx context.Context, s *scope) (map[string]any, error) { return c.do(ctx, cl, s) }}
					},
				})
			})
			if c.says == "" {
				if len(said) > 0 {
					t.Errorf("%s: found %v, want nothing", c.why, said)
				}
				if diff := cmp.Diff(c.writes, covered.Writes); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
				return
			}
			if len(said) == 0 || !strings.Contains(said[0], c.says) {
				t.Errorf("%s: found %v, want first: %s", c.why, said, c.says)
			}
		})
	}
}

func TestIdempotentKnowsWhatAMachineFileCouldGive(t *testing.T) {
	cases := map[string]struct {
		why  string
		with fsm.Params
		says string
	}{
		"unknown": {why: "a test with a misspelled parameter tests nothing", with: fsm.Params{"nom": "a", "name": "a"}, says: "parameter nom is not declared by the action"},
		"missing": {why: "the loader would refuse the file", with: fsm.Params{}, says: "parameter name is required by the action"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := apiruntime.NewScheme()
			if err := migrationv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			said := (&heard{ctx: t.Context()}).run(func(t testing.TB) {
				runnertest.Idempotent(t, runnertest.Case[*errand]{
					Client: fake.NewClientBuilder().WithScheme(scheme).Build(),
					Setup: func(ctx context.Context, c client.Client) (*errand, error) {
						obj := &errand{ObjectMeta: metav1.ObjectMeta{Name: "errand"}}
						return obj, c.Create(ctx, obj)
					},
					Action: func(client.Client) runner.Action[*errand] {
						return runner.Action[*errand]{ActionSpec: fsm.ActionSpec{Params: map[string]fsm.Param{"name": {Type: fsm.TypeString, Required: true}}}}
					},
					With: func(*errand) fsm.Params { return c.with },
				})
			})
			if diff := cmp.Diff([]string{c.says}, said); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
