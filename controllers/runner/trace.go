package runner

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Spans bear names and classes. What is in an object, and the text of an error,
// which may quote it, stays out of them.
const (
	tracerName = "github.com/phasegate/phasegate/controllers/runner"

	spanObject  = attribute.Key("phasegate.object")
	spanMachine = attribute.Key("phasegate.machine")
	spanPhase   = attribute.Key("phasegate.phase")
	spanStep    = attribute.Key("phasegate.step")
	spanAction  = attribute.Key("phasegate.action")
	spanOutcome = attribute.Key("phasegate.outcome")
	spanTo      = attribute.Key("phasegate.to")
	spanReason  = attribute.Key("phasegate.reason")
)

// startSpan costs next to nothing while nobody traces; ask IsRecording before
// working out an attribute.
func (r *Reconciler[T]) startSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	provider := r.Tracing
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(tracerName).Start(ctx, name)
}

func (r *Reconciler[T]) startPass(ctx context.Context, req reconcile.Request) (context.Context, trace.Span) {
	ctx, span := r.startSpan(ctx, "reconcile")
	if span.IsRecording() {
		span.SetAttributes(spanObject.String(req.String()))
	}
	return ctx, span
}

func (r *Reconciler[T]) startStep(ctx context.Context, cmd fsm.Decision) (context.Context, trace.Span) {
	ctx, span := r.startSpan(ctx, "step")
	if span.IsRecording() {
		span.SetAttributes(spanStep.String(cmd.Step), spanAction.String(cmd.Action))
	}
	return ctx, span
}

// named gives the span and the log lines of a pass what they are about.
func named(ctx context.Context, machine *fsm.Machine, state *v1alpha1.MachineState) context.Context {
	phase := ""
	if state != nil {
		phase = state.Status.Phase
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(spanMachine.String(machine.Name()), spanPhase.String(phase))
	}
	logger := log.FromContext(ctx).WithValues("machine", machine.Name(), "kind", machine.For().Kind, "phase", phase)
	return log.IntoContext(ctx, logger)
}

func traceTransition(ctx context.Context, t *v1alpha1.Transition) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("transition", trace.WithAttributes(spanTo.String(t.To), spanReason.String(t.Reason)))
	}
}

// endStep tells how a step ended. err is about the pass, which drops the outcome.
func endStep(span trace.Span, o fsm.Result, err error) {
	outcome := "Done"
	switch {
	case errors.Is(err, errMoved):
		outcome = "Moved"
	case err != nil:
		outcome = "Abandoned"
	case o.Err != nil && o.Class == "":
		outcome = "Wait"
	case o.Err != nil:
		outcome = string(o.Class)
		span.SetStatus(codes.Error, outcome)
	}
	if span.IsRecording() {
		span.SetAttributes(spanOutcome.String(outcome))
	}
	span.End()
}
