package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

var evictSpec = fsm.ActionSpec{
	Doc: "Evicts a Pod, as a drain of its node does, and waits until it is gone. While a PodDisruptionBudget does not allow it, the step waits, and its message is the answer of the API server. " +
		"A Pod that is gone already is evicted, and so is one in whose place there is another: each step evicts one Pod of a name in each visit to the phase, whatever crashes. " +
		"A crash before the request repeats it; after it, or when the answer is lost, the Pod is found on its way out, or gone.",
	Params: map[string]fsm.Param{
		"name":               {Type: fsm.TypeString, Required: true, Check: isName, Doc: "of the Pod"},
		"namespace":          {Type: fsm.TypeString, Doc: "of the Pod; default: that of the object that the machine drives"},
		"uid":                {Type: fsm.TypeString, Doc: "of the Pod: one of another UID is left alone. Left out: the Pod that is there when the step begins is meant, which the MachineState notes; in a forEach of hundreds give it"},
		"gracePeriodSeconds": {Type: fsm.TypeInt, Check: isGracePeriod, Doc: "instead of that of the Pod; 0 kills it at once"},
		"wait":               {Type: fsm.TypeBool, Doc: "false: done once the eviction is accepted"},
	},
	Outputs: map[string]fsm.Type{"gone": fsm.TypeBool},
}

const (
	podKind = "Pod"
	// subEviction is what an eviction is created under.
	subEviction = "eviction"
	// savedEviction is the entry of the state that says which Pod each step evicts.
	savedEviction = "eviction"
)

// toEvicted: a Pod is read, and its subresource created.
func toEvicted(with fsm.Params) []rbac.Access {
	pod := object(corev1.SchemeGroupVersion.String(), podKind, with.String("namespace", ""), with.String("name", ""))
	return append(toObject(pod, "get"), part(pod, subEviction, "create")...)
}

func evict(ctx context.Context, c *call) (outputs, error) {
	pod := object(corev1.SchemeGroupVersion.String(), podKind, c.with.String("namespace", ""), c.with.String("name", ""))
	if err := c.place(pod); err != nil {
		return nil, err
	}
	found, err := c.findFor(ctx, pod, toEvicted(c.with))
	if err != nil || !found {
		return outputs{"gone": true}, err
	}
	meant, err := c.meantPod(ctx, pod)
	if err != nil || pod.GetUID() != meant {
		return outputs{"gone": true}, err
	}
	if pod.GetDeletionTimestamp() == nil {
		if found, err = c.requestEviction(ctx, pod); err != nil {
			return nil, err
		}
	}
	gone := !found || pod.GetUID() != meant
	if !gone && (c.with.Bool("wait", true) || pod.GetDeletionTimestamp() == nil) {
		return nil, fsm.Wait("Waiting until gone: %s%s", title(pod), because(pod.GetFinalizers()))
	}
	return outputs{"gone": gone}, nil
}

// meantPod is the UID of the Pod that the step evicts in this visit. It is on record before the Pod is evicted: when the step
// is called again, a Pod that a StatefulSet has made in its place must not be taken for it.
func (c *call) meantPod(ctx context.Context, pod *unstructured.Unstructured) (types.UID, error) {
	if uid := c.with.String("uid", ""); uid != "" {
		return types.UID(uid), nil
	}
	notes, err := readNotes[types.UID](c, savedEviction)
	if err != nil {
		return "", err
	}
	key := c.visitKey(c.stepID, pod.GetNamespace(), pod.GetName())
	if meant, known := notes[key]; known {
		return meant, nil
	}
	return pod.GetUID(), saveNote(ctx, c, savedEviction, notes, key, pod.GetUID())
}

// requestEviction reads again what has the name of the Pod once that is on its way out, or has gone or changed meanwhile.
func (c *call) requestEviction(ctx context.Context, pod *unstructured.Unstructured) (found bool, err error) {
	options := map[string]any{"preconditions": map[string]any{"uid": string(pod.GetUID())}}
	if c.with["gracePeriodSeconds"] != nil {
		options["gracePeriodSeconds"] = int64(c.with.Int("gracePeriodSeconds", 0))
	}
	eviction := object(policyv1.SchemeGroupVersion.String(), "Eviction", pod.GetNamespace(), pod.GetName())
	eviction.Object["deleteOptions"] = options
	err = c.Client.SubResource(subEviction).Create(ctx, pod, eviction) //nolint:forbidigo // no status
	switch {
	case err == nil, apierrors.ObjectNotFound(err), apierrs.IsConflict(err):
		return c.findFor(ctx, pod, toEvicted(c.with))
	case apierrs.IsTooManyRequests(err):
		return false, &fsm.WaitError{After: apierrors.RetryAfter(err), Message: fmt.Sprintf("evict %s: %s", title(pod), refusal(err))}
	}
	return false, c.explainAll(err, "evict", pod, toEvicted(c.with))
}

// refusal is the answer of the API server with its causes: they name the budget.
func refusal(err error) string {
	said := []string{err.Error()}
	var answer apierrs.APIStatus
	if errors.As(err, &answer) && answer.Status().Details != nil {
		for _, cause := range answer.Status().Details.Causes {
			said = append(said, cause.Message)
		}
	}
	return strings.Join(said, " ")
}

func isGracePeriod(v any) error {
	if seconds := (fsm.Params{"of": v}).Int("of", 0); seconds < 0 {
		return badParameter("gracePeriodSeconds is %d: give 0 or more", seconds)
	}
	return nil
}
