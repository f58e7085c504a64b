package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// refusedPrefix begins the message of a condition that decorate does not derive from
// the spec: it is what the API server said.
const refusedPrefix = "the API server refuses the pods of the server: "

// tryBackend asks, by a dry run of what a proxy does, whether the API server takes the
// backend: of a refusal, the proxy's log alone would tell. It asks before the proxy's
// pods change, and again where a proxy is up and its backend is not. Whatever else goes
// wrong the proxy meets by itself.
func (s *steps) tryBackend(ctx context.Context, sc *scope, live *appsv1.Deployment, set *appsv1.StatefulSet, want *proxy) error {
	err := error(nil)
	if mayBeRefused(live, set, want.backend.Run.MCPServerGeneration) {
		_, err = backend.Deploy(ctx, client.NewDryRunClient(s.client), want.backend)
	}
	if !refusal(err) {
		sc.Report(forgetRefusal)
		return nil
	}
	p := newProblem(v1beta1.ReasonInvalidPodTemplateSpec, "%s%v", refusedPrefix, err)
	sc.Report(func(srv *server) { setCondition(srv, v1beta1.ConditionPodTemplateValid, whileFalse(p)) })
	return fsm.Terminal(p.Reason, "%s: change the spec, mostly podTemplateSpec, or the policy", p.Message)
}

// mayBeRefused: the backend is not of the generation that the proxy's pods are to have,
// and they are about to change, or one of them is up and had the time to make it so.
func mayBeRefused(live *appsv1.Deployment, set *appsv1.StatefulSet, wants int64) bool {
	if set != nil && generationOn(set.Annotations, set.Spec.Template.Annotations) >= wants {
		return false
	}
	return live == nil || generationOn(live.Spec.Template.Annotations) != wants || live.Status.ReadyReplicas > 0
}

// refusal tells the verdict of validation and admission from a server that is busy or
// gone, a conflict, a right that we lack, and a webhook that dry runs do not reach.
// Webhooks choose their status code themselves.
func refusal(err error) bool {
	var status apierrs.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	switch {
	case code < http.StatusBadRequest || code >= http.StatusInternalServerError:
		return false
	case apierrs.IsConflict(err), apierrs.IsTooManyRequests(err), apierrs.IsUnauthorized(err), apierrs.IsNotFound(err), apierrs.IsAlreadyExists(err):
		return false
	}
	return !strings.Contains(err.Error(), "does not support dry run") && !apierrors.NotAllowed(err)
}

// forgetRefusal lets decorate say again what the spec alone says.
func forgetRefusal(srv *server) {
	if refused(srv) != nil {
		meta.RemoveStatusCondition(&srv.Status.Conditions, v1beta1.ConditionPodTemplateValid)
	}
}

// refused is what the API server said last of the spec as it is; nil for nothing.
func refused(srv *server) *problem {
	c := meta.FindStatusCondition(srv.Status.Conditions, v1beta1.ConditionPodTemplateValid)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != srv.Generation || !strings.HasPrefix(c.Message, refusedPrefix) {
		return nil
	}
	return &problem{Reason: c.Reason, Message: c.Message}
}
