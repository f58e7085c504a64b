package supportbundle

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/resources"
)

// Bounds of what is read.
const (
	logLines = int64(2000)
	logBytes = int64(1 << 20)
)

// partOf are the labels of what the chart installs.
var partOf = client.MatchingLabels{"app.kubernetes.io/name": "phasegate"}

// list reads objects of a kind. One that is not served is named: what is in the bundle does not say that there are none.
func (c *collector) list(ctx context.Context, gvk schema.GroupVersionKind, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	all, err := live.All(ctx, c.Client, gvk, opts...)
	if meta.IsNoMatchError(err) || apierrs.IsNotFound(err) {
		c.notServed = append(c.notServed, gvk.GroupKind().String())
		return nil, nil
	}
	return all, err
}

// those keeps the objects of a kind that are wanted.
func (c *collector) those(ctx context.Context, dir string, gvk schema.GroupVersionKind, wanted func(u *unstructured.Unstructured) bool, opts ...client.ListOption) error {
	all, err := c.list(ctx, gvk, opts...)
	for i := range all {
		if wanted(&all[i]) {
			c.keep(dir, &all[i])
		}
	}
	return err
}

func always(*unstructured.Unstructured) bool { return true }

func (c *collector) keep(dir string, u *unstructured.Unstructured) {
	c.redactor.Object(u.Object)
	c.files[path.Join(dir, u.GetNamespace(), u.GetName()+".json")] = u.Object
}

func (c *collector) migrations(ctx context.Context) error {
	return c.those(ctx, "migrations", migrationv1.GroupVersion.WithKind("DatastoreMigration"), func(u *unstructured.Unstructured) bool {
		wanted := c.Migration == "" || u.GetName() == c.Migration
		if wanted && c.RedactNames {
			c.hideNames(u)
		}
		return wanted
	})
}

// hideNames hashes the names of the objects in conflict, wherever the CRD keeps them.
func (c *collector) hideNames(dm *unstructured.Unstructured) {
	listed, _, _ := unstructured.NestedFieldNoCopy(dm.Object, "status", "conflicts")
	for _, conflict := range conflictsIn(listed) {
		c.redactor.hash(conflict.Name, conflict.Namespace)
	}
	conditions, _, _ := unstructured.NestedSlice(dm.Object, "status", "conditions")
	for conflict := range conflictConditions(conditions) {
		c.redactor.hash(conflict.Name, conflict.Namespace)
	}
}

func (c *collector) servers(ctx context.Context) error {
	return c.those(ctx, "mcpservers", schema.GroupVersionKind{Group: "toolhive.stacklok.dev", Version: "v1beta1", Kind: "MCPServer"}, always)
}

// states are those of the migrations that are kept, and of every other machine; also those
// whose object is gone.
func (c *collector) states(ctx context.Context) error {
	return c.those(ctx, "machinestates", v1alpha1.GroupVersion.WithKind("MachineState"), func(u *unstructured.Unstructured) bool {
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "object", "kind")
		name, _, _ := unstructured.NestedString(u.Object, "spec", "object", "name")
		return c.Migration == "" || kind != "DatastoreMigration" || name == c.Migration
	})
}

// programs are what the chart runs, with the end of what they said.
func (c *collector) programs(ctx context.Context) error {
	if err := c.those(ctx, "programs/deployments", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, always, partOf); err != nil {
		return err
	}
	return c.those(ctx, "programs/pods", corev1.SchemeGroupVersion.WithKind("Pod"), func(pod *unstructured.Unstructured) bool {
		c.logs(ctx, pod.GetNamespace(), pod.GetName())
		return true
	}, partOf)
}

func (c *collector) logs(ctx context.Context, namespace, pod string) {
	for _, suffix := range []string{"", "-previous"} {
		text, err := c.kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{TailLines: new(logLines), LimitBytes: new(logBytes), Previous: suffix != "", Timestamps: true}).DoRaw(ctx)
		name := fmt.Sprintf("programs/logs/%s/%s%s.log", namespace, pod, suffix)
		switch {
		case err == nil:
			c.files[name] = text
		case suffix == "": // most have no previous one
			c.missing = append(c.missing, fmt.Sprintf("%s: %v", name, err))
		}
	}
}

// about are the kinds of which events are kept, besides those in the namespaces of the programs.
var about = []string{"DatastoreMigration", "MCPServer", "MachineState"}

func (c *collector) events(ctx context.Context) error {
	all, err := c.list(ctx, schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"})
	if err != nil {
		return err
	}
	var kept []any
	for i := range all {
		kind, _, _ := unstructured.NestedString(all[i].Object, "regarding", "kind")
		name, _, _ := unstructured.NestedString(all[i].Object, "regarding", "name")
		if slices.Contains(about, kind) || strings.HasPrefix(name, "phasegate") {
			c.redactor.Object(all[i].Object)
			kept = append(kept, all[i].Object)
		}
	}
	c.files["events.json"] = kept
	return nil
}

// crds are the shape of definitions: what is served and stored, and whether it works.
func (c *collector) crds(ctx context.Context) error {
	all, err := c.list(ctx, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	groups := []string{resources.V1Group, resources.V3Group, migrationv1.GroupVersion.Group, "toolhive.stacklok.dev", "phasegate.dev"}
	shapes := map[string]any{}
	for i := range all {
		group, _, _ := unstructured.NestedString(all[i].Object, "spec", "group")
		if !slices.Contains(groups, group) {
			continue
		}
		var versions []any
		listed, _, _ := unstructured.NestedSlice(all[i].Object, "spec", "versions")
		for _, item := range listed {
			if v, ok := item.(map[string]any); ok {
				_, keepsMachine, _ := unstructured.NestedFieldNoCopy(v, "schema", "openAPIV3Schema", "properties", "status", "properties", "machine") // a peer's CRD prunes it
				versions = append(versions, map[string]any{"name": v["name"], "served": v["served"], "storage": v["storage"], "keepsStatusMachine": keepsMachine})
			}
		}
		scope, _, _ := unstructured.NestedString(all[i].Object, "spec", "scope")
		conditions, _, _ := unstructured.NestedSlice(all[i].Object, "status", "conditions")
		stored, _, _ := unstructured.NestedSlice(all[i].Object, "status", "storedVersions")
		shapes[all[i].GetName()] = map[string]any{"scope": scope, "versions": versions, "storedVersions": stored, "conditions": conditions,
			"deleting": all[i].GetDeletionTimestamp() != nil}
	}
	c.files["crds.json"] = shapes
	return err
}

func (c *collector) apiService(ctx context.Context) error {
	return c.those(ctx, "apiservices", schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}, func(u *unstructured.Unstructured) bool {
		return strings.HasSuffix(u.GetName(), "."+resources.V3Group)
	})
}

// admission are policies of ours; of others only the names, since any may refuse a write.
func (c *collector) admission(ctx context.Context) error {
	others := map[string][]string{}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		err := c.those(ctx, "admission/"+kind, schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, func(u *unstructured.Unstructured) bool {
			ours := u.GetName() == migrationv1.FenceName || u.GetName() == migrationv1.V3FenceName || u.GetLabels()["app.kubernetes.io/name"] == "phasegate"
			if !ours {
				others[kind] = append(others[kind], u.GetName())
			}
			return ours
		})
		if err != nil {
			return err
		}
	}
	c.files["admission/others.json"] = others
	return nil
}

// calico counts Calico's objects, and looks whether the datastore is open.
func (c *collector) calico(ctx context.Context) error {
	counts, locks := map[string]int64{}, map[string]any{}
	for _, kind := range resources.Default().All() {
		for _, gvk := range []schema.GroupVersionKind{kind.V1GVK(), kind.V3GVK()} {
			n, err := c.count(ctx, gvk)
			if err != nil {
				return err
			}
			counts[gvk.GroupVersion().String()+" "+gvk.Kind] = n
		}
	}
	for _, gvk := range []schema.GroupVersionKind{resources.Default().Lock().V1GVK(), resources.Default().Lock().V3GVK()} {
		info := &unstructured.Unstructured{}
		info.SetGroupVersionKind(gvk)
		if err := c.Client.Get(ctx, client.ObjectKey{Name: "default"}, info); err != nil {
			continue // the checks say why
		}
		ready, _, _ := unstructured.NestedFieldNoCopy(info.Object, "spec", "datastoreReady")
		locks[gvk.GroupVersion().String()] = map[string]any{"datastoreReady": ready, "lockedBy": info.GetAnnotations()[migrationv1.AnnotationLockedBy]}
	}
	c.files["calico.json"] = map[string]any{"objects": counts, "locks": locks}
	return nil
}

// count reads one object's metadata and lets the API server count the rest; -1 where the
// kind is not served.
func (c *collector) count(ctx context.Context, gvk schema.GroupVersionKind) (int64, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	err := c.Client.List(ctx, list, client.Limit(1))
	if meta.IsNoMatchError(err) || apierrs.IsNotFound(err) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", gvk.GroupKind(), err)
	}
	n := int64(len(list.Items))
	if list.RemainingItemCount != nil {
		n += *list.RemainingItemCount
	}
	return n, nil
}

func (c *collector) checks(ctx context.Context) error {
	files, err := checkup.Load("", "")
	if err != nil {
		return err
	}
	report, err := checkup.Run(ctx, checkup.Options{Config: c.Config, Controllers: checkup.Controllers[:2], CalicoNamespace: c.CalicoNamespace, Files: files})
	if err != nil {
		return err
	}
	text, err := json.Marshal(report)
	c.files["checks.json"] = text
	return err
}
