package builtin

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

var emitEventSpec = fsm.ActionSpec{
	Doc: "Emits a Kubernetes Event about the object, once for each reason in each visit to the phase.",
	Params: map[string]fsm.Param{
		"reason":  {Type: fsm.TypeString, Required: true, Check: isReason, Doc: "one CamelCase word"},
		"message": {Type: fsm.TypeString, Required: true, Doc: "for people; cut after 1024 bytes"},
		"type":    {Type: fsm.TypeString, Check: oneOf(corev1.EventTypeNormal, corev1.EventTypeWarning), Doc: "Normal (the default) or Warning"},
	},
}

// reporter is the controller that Events are from.
const reporter = "phasegate"

// maxEventOwner leaves room for the suffix in the name of an Event.
const maxEventOwner = 200

// namespaceEnds tells that the namespace is being deleted, or is gone: an object that is deleted with it must not wait for it.
func namespaceEnds(err error) bool {
	about := apierrors.Details(err)
	return apierrors.NamespaceEnds(err) || apierrors.ObjectNotFound(err) && about.Kind == "namespaces"
}

func emitEvent(ctx context.Context, c *call) (outputs, error) {
	reason := c.with.String("reason", "")
	namespace := c.owner.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where Events of cluster-scoped objects are
	}
	owner := c.owner.GetName()
	event := &eventsv1.Event{
		// The name is the same when the action runs again: the second create fails.
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: strings.TrimRight(owner[:min(len(owner), maxEventOwner)], "-.") + "." + c.visitKey(reason)},
		EventTime:           metav1.NewMicroTime(c.now()),
		ReportingController: reporter, ReportingInstance: reporter,
		Action: "EmitEvent", Reason: reason, Type: c.with.String("type", corev1.EventTypeNormal), Note: runner.Cut(c.with.String("message", ""), maxText),
		Regarding: corev1.ObjectReference{APIVersion: c.kind.GroupVersion().String(), Kind: c.kind.Kind,
			Namespace: c.owner.GetNamespace(), Name: owner, UID: c.owner.GetUID()},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	obj.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	err = c.Client.Create(ctx, obj, c.writer())
	if apierrs.IsAlreadyExists(err) || namespaceEnds(err) { // no Event is kept there
		return nil, nil
	}
	return nil, c.explain(err, "create", obj, "create")
}
