package builtin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sfields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

var listObjectsSpec = fsm.ActionSpec{
	Doc: "Lists objects of a kind into result.items, in the order of the API server: of each its name, its namespace, and the fields that are named. Changes nothing. " +
		"One call answers one page: where result.continue is not empty there are more, for a call with continue: that text. Keep it in a state value, and lead back to the phase. " +
		"After a crash the page is read again. " +
		"A page has at most 96 KiB, else the step fails (TooLarge).",
	Check: fieldsToList,
	Params: map[string]fsm.Param{
		"apiVersion":    {Type: fsm.TypeString, Required: true, Check: isAPIVersion, Doc: "of the objects, for example apps/v1"},
		"kind":          {Type: fsm.TypeString, Required: true, Check: isKind, Doc: "of the objects, for example Deployment"},
		"namespace":     {Type: fsm.TypeString, Doc: "of the objects; * is all of them; default: that of the object that the machine drives"},
		"labelSelector": {Type: fsm.TypeAny, Check: isLabelSelector, Doc: "labels with their values, or a text as kubectl takes it: app=web,tier!=test"},
		"fieldSelector": {Type: fsm.TypeString, Check: isFieldSelector, Doc: "as kubectl takes it: status.phase=Running"},
		"fields":        {Type: fsm.TypeStrings, Doc: "paths of the fields to keep, for example spec.replicas, or spec.containers[*].image; default: none"},
		"limit":         {Type: fsm.TypeInt, Check: isPage, Doc: "of a page, 1 to 500; default 100"},
		"continue":      {Type: fsm.TypeString, Doc: "result.continue of the page before"},
		"expired": {Type: fsm.TypeString, Check: oneOf(fromFirstPage, fromSamePlace), Doc: "what to do where the API server has forgotten the place (410), after some five to ten minutes: restart (the default) with the first page, as result.restarted says, or " +
			"continue at the place, among the objects as they are by now: what was created before it meanwhile is not listed"},
	},
	Outputs: map[string]fsm.Type{"items": fsm.TypeAny, "count": fsm.TypeInt, "continue": fsm.TypeString, "remaining": fsm.TypeInt, "restarted": fsm.TypeBool},
}

const (
	defaultPage = 100
	maxPage     = 500
	// maxPageBytes leaves room in a result of 128 KiB.
	maxPageBytes = 96 << 10
	everywhere   = "*"

	fromFirstPage = "restart"
	fromSamePlace = "continue"
)

func listObjects(ctx context.Context, c *call) (outputs, error) {
	obj, options, err := c.pageOptions()
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(obj.GroupVersionKind())
	restarted := false
	err = c.Client.List(ctx, list, options)
	if options.Continue != "" && (apierrs.IsResourceExpired(err) || apierrs.IsGone(err)) {
		options.Continue = c.placeAfter(err)
		restarted = options.Continue == ""
		err = c.Client.List(ctx, list, options)
	}
	if err != nil {
		return nil, c.explain(err, "list", obj, "list")
	}
	items := make([]any, len(list.Items))
	for i := range list.Items {
		if items[i], err = itemOf(&list.Items[i], c.with.Strings("fields")); err != nil {
			return nil, err
		}
	}
	if data, err := json.Marshal(items); err != nil || len(data) > maxPageBytes {
		return nil, fsm.Terminal("TooLarge", "%d objects of kind %s are %d bytes with the fields %v, more than %d: name fewer fields, or a smaller limit", len(items), obj.GetKind(), len(data), c.with.Strings("fields"), maxPageBytes)
	}
	remaining := int64(0)
	if n := list.GetRemainingItemCount(); n != nil {
		remaining = *n
	}
	return outputs{"items": items, "count": int64(len(items)), "continue": list.GetContinue(), "remaining": remaining, "restarted": restarted}, nil
}

// placeAfter is where a list goes on whose place was forgotten; empty: at its beginning. The answer has a token for the same
// place in the present.
func (c *call) placeAfter(expired error) string {
	if status, has := errors.AsType[*apierrs.StatusError](expired); has && c.with.String("expired", fromFirstPage) == fromSamePlace {
		return status.ErrStatus.Continue
	}
	return ""
}

// itemOf is what is kept of an object.
func itemOf(obj *unstructured.Unstructured, fields []string) (map[string]any, error) {
	item := map[string]any{}
	for _, field := range fields {
		if err := keep(item, obj, field); err != nil {
			return nil, err
		}
	}
	item["name"] = obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		item["namespace"] = namespace
	}
	return item, nil
}

// pageOptions say which objects are listed. Their kind is that of obj.
func (c *call) pageOptions() (obj *unstructured.Unstructured, o *client.ListOptions, err error) {
	obj = named(c.with)
	o = &client.ListOptions{Limit: int64(c.with.Int("limit", defaultPage)), Continue: c.with.String("continue", "")}
	if obj.GetNamespace() == everywhere {
		obj.SetNamespace("")
	} else if err = c.place(obj); err != nil {
		return obj, o, err
	}
	o.Namespace = obj.GetNamespace()
	if o.LabelSelector, err = labelSelector(c.with["labelSelector"]); err != nil {
		return obj, o, err
	}
	o.FieldSelector, err = k8sfields.ParseSelector(c.with.String("fieldSelector", ""))
	return obj, o, err
}

// labelSelector is one of a text, or of labels that must be there.
func labelSelector(v any) (labels.Selector, error) {
	switch of := v.(type) {
	case nil:
		return labels.Everything(), nil
	case string:
		return labels.Parse(of)
	case map[string]any:
		if of["matchLabels"] != nil || of["matchExpressions"] != nil { // as a Deployment has it
			selector := &metav1.LabelSelector{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(of, selector); err != nil {
				return nil, err
			}
			return metav1.LabelSelectorAsSelector(selector)
		}
		set := labels.Set{}
		for _, name := range slices.Sorted(maps.Keys(of)) {
			text, isText := of[name].(string)
			if !isText {
				return nil, badParameter("label %s: %v is no text: quote it", name, of[name])
			}
			set[name] = text
		}
		return labels.ValidatedSelectorFromSet(set)
	}
	return nil, badParameter("labelSelector is neither a text nor labels: write {app: web}, or app=web")
}

func isLabelSelector(v any) error {
	if written, _ := json.Marshal(v); strings.Contains(string(written), "${") {
		return nil
	}
	if _, err := labelSelector(v); err != nil {
		return badParameter("labelSelector: %w", err)
	}
	return nil
}

func isFieldSelector(v any) error {
	if _, err := k8sfields.ParseSelector(v.(string)); err != nil {
		return badParameter("fieldSelector: %w", err)
	}
	return nil
}

func isPage(v any) error {
	if limit := (fsm.Params{"limit": v}).Int("limit", 0); limit >= 1 && limit <= maxPage {
		return nil
	}
	return badParameter("limit is %v: give 1 to %d", v, maxPage)
}

func fieldsToList(with fsm.Params) []fsm.Misfit {
	if with["fields"] == nil {
		return kindOfTarget(with)
	}
	return fieldsToRead(with)
}

// toListed is without a name: that of one object does not restrict a list.
func toListed(with fsm.Params) []rbac.Access {
	obj := named(with)
	if obj.GetNamespace() == everywhere {
		obj.SetNamespace("")
	}
	return toObject(obj, "list")
}
