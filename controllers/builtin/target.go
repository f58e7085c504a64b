package builtin

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/fsm"
)

// withTarget adds the parameters that name another object.
func withTarget(own map[string]fsm.Param) map[string]fsm.Param {
	all := map[string]fsm.Param{
		"apiVersion": {Type: fsm.TypeString, Required: true, Check: isAPIVersion, Doc: "of the object, for example apps/v1"},
		"kind":       {Type: fsm.TypeString, Required: true, Check: isKind, Doc: "of the object, for example Deployment"},
		"name":       {Type: fsm.TypeString, Required: true, Check: isName, Doc: "of the object"},
		"namespace":  {Type: fsm.TypeString, Doc: "of the object; default: that of the object that the machine drives"},
	}
	maps.Copy(all, own)
	return all
}

// target is the object that the parameters name, not read yet.
func (c *call) target() (*unstructured.Unstructured, error) {
	obj := named(c.with)
	return obj, c.place(obj)
}

func named(with fsm.Params) *unstructured.Unstructured {
	return object(with.String("apiVersion", ""), with.String("kind", ""), with.String("namespace", ""), with.String("name", ""))
}

// object is one that was not read yet.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
