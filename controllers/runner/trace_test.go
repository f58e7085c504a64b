package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/fsm"
)

// secret is in the object wherever a user can put it.
const secret = "hunter2-do-not-tell"

// hide puts the secret into the object.
func (b *bench) hide() {
	b.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{"password":%q},"labels":{"token":%q}}}`, secret, secret)
	if err := b.outside.Patch(b.t.Context(), b.stored(), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
	}
}

// span is what is compared of one; names and attributes, as text, tell the tree.
type span struct {
	Name, Parent, Status string
	Attributes, Events   []string
}

func spans(recorder *tracetest.SpanRecorder) []span {
	names := map[string]string{}
	for _, s := range recorder.Started() {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	var all []span
	for _, s := range recorder.Ended() {
		one := span{Name: s.Name(), Parent: names[s.Parent().SpanID().String()], Status: s.Status().Description}
		for _, a := range s.Attributes() {
			one.Attributes = append(one.Attributes, string(a.Key)+"="+a.Value.String())
		}
		for _, e := range s.Events() {
			text := e.Name
			for _, a := range e.Attributes {
				text += " " + string(a.Key) + "=" + a.Value.String()
			}
			one.Events = append(one.Events, text)
		}
		all = append(all, one)
	}
	return all
}

func TestSpans(t *testing.T) {
	cases := map[string]struct {
		why     string
		work    deed
		outcome string
		status  string
		events  []string
	}{
		"done":      {why: "a step that went well", work: answer(map[string]any{"done": true}, nil), outcome: "Done", events: []string{"transition phasegate.to=Done phasegate.reason=Worked"}},
		"waits":     {why: "not yet is no error", work: answer(nil, fsm.Wait("not yet "+secret)), outcome: "Wait"},
		"fails":     {why: "the class tells, the text may quote an object", work: answer(nil, errors.New(secret)), outcome: "Unavailable", status: "Unavailable"},
		"abandoned": {why: "the process ends during the step", outcome: "Abandoned"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.hide()
			b.atWork()
			recorder := tracetest.NewSpanRecorder()
			b.Tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.work = c.work
			if c.work == nil {
				b.work = func(ctx context.Context, _ *scope) (map[string]any, error) { cancel(); return nil, ctx.Err() }
			}
			if _, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}}); err != nil {
				t.Fatal(err)
			}
			pass := span{Name: "reconcile", Events: c.events, Attributes: []string{"phasegate.object=" + "/" + b.name, "phasegate.machine=errand", "phasegate.phase=Working"}}
			step := span{Name: "step", Parent: "reconcile", Status: c.status, Attributes: []string{"phasegate.step=Work", "phasegate.action=Work", "phasegate.outcome=" + c.outcome}}
			// The effect is taken anew in each pass: a crash may have been before it was.
			take := span{Name: "step", Parent: "reconcile", Attributes: []string{"phasegate.step=Take", "phasegate.action=Take", "phasegate.outcome=Done"}}
			got := spans(recorder)
			if diff := cmp.Diff([]span{take, step, pass}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			if strings.Contains(fmt.Sprint(got), secret) {
				t.Error("the spans tell the secret")
			}
		})
	}
}

// A whole life with trouble on the way, at the most talkative level: each line
// tells whom it is about, and none tells what is in the object.
func TestLogTellsNoContents(t *testing.T) {
	b := newBench(t)
	b.hide()
	var out bytes.Buffer
	ctx := log.IntoContext(t.Context(), zap.New(zap.WriteTo(&out), zap.JSONEncoder(), zap.Level(zapcore.Level(-5))))
	b.troubledLife(ctx)

	said := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		said[fmt.Sprint(fields["msg"])]++
		if fields["machine"] != "errand" || fields["kind"] != "DatastoreMigration" || fields["phase"] == nil {
			t.Errorf("the line does not tell whom it is about: %s", line)
		}
		if fields["msg"] == "step failed" && fields["step"] != "Work" {
			t.Errorf("the line does not tell the step: %s", line)
		}
	}
	want := map[string]int{"transition": 5, "at work": 3, "step failed": 1, "the object changed meanwhile, starting again": 1}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the log tells the secret:\n%s", out.String())
	}
}

// troubledLife makes every pass of the object, from its begin to its end: the work
// fails once, is waited for once, and another manager writes during the deletion.
func (b *bench) troubledLife(ctx context.Context) {
	b.t.Helper()
	troubles := []error{errors.New("no network"), fsm.Wait("not yet"), nil}
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		log.FromContext(ctx).Info("at work", "with", s.Object)
		err := troubles[0]
		troubles = troubles[1:]
		return map[string]any{"done": err == nil}, err
	}
	pass := func() {
		b.t.Helper()
		if _, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}}); err != nil {
			b.t.Fatal(err)
		}
		b.clock.Step(20 * time.Second)
	}
	for b.stored().Status.Machine.Phase != "Done" {
		pass()
	}
	b.between(func(ctx context.Context, _ string, send func() error) error {
		b.between(nil)
		return errors.Join(b.anotherManager(ctx), send())
	})
	if err := b.outside.Delete(ctx, b.stored()); err != nil {
		b.t.Fatal(err)
	}
	for range 8 {
		pass()
	}
}
