package simulation

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// request is one call of the API server.
type request struct {
	verb, subresource string
	ref
}

func (r request) String() string { return r.verb + " " + r.subresource + r.ref.String() }

func (r request) writes() bool { return r.verb != "get" && r.verb != "list" }

// apiClient is the client of one process.
type apiClient struct {
	client.Client // what nobody here calls
	server        *apiServer
	scheme        *runtime.Scheme
	mapper        meta.RESTMapper
	// around carries a request out, or does not.
	around func(r request, do func() error) error
	// careless: it writes whatever has become of what it has read.
	careless func(request) bool
}

func (c *apiClient) Scheme() *runtime.Scheme     { return c.scheme }
func (c *apiClient) RESTMapper() meta.RESTMapper { return c.mapper }

func (c *apiClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.scheme)
}

func (c *apiClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)
}

func (c *apiClient) request(verb, subresource string, obj client.Object) (request, error) {
	kind, err := c.GroupVersionKindFor(obj)
	return request{verb, subresource, ref{kind, client.ObjectKeyFromObject(obj)}}, err
}

func (c *apiClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	r, err := c.request("get", "", obj)
	if err != nil {
		return err
	}
	r.NamespacedName = key
	return c.around(r, func() error {
		return c.server.read(r.ref, obj)
	})
}

// List is for unstructured lists, as the built-in actions ask.
func (c *apiClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	into, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("nobody lists a %T here", list)
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	kind := into.GroupVersionKind()
	return c.around(request{verb: "list", ref: ref{GroupVersionKind: kind}}, func() error {
		for _, obj := range c.server.all(kind, o.Namespace) {
			if o.LabelSelector == nil || o.LabelSelector.Matches(labelsOf(obj)) {
				into.Items = append(into.Items, *obj.DeepCopy())
			}
		}
		return nil
	})
}

type labelsMap map[string]string

func labelsOf(obj object) labelsMap { return obj.GetLabels() }

func (l labelsMap) Has(label string) bool              { _, has := l[label]; return has }
func (l labelsMap) Get(label string) string            { return l[label] }
func (l labelsMap) Lookup(label string) (string, bool) { v, has := l[label]; return v, has }

func (c *apiClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	r, err := c.request("create", "", obj)
	if err != nil {
		return err
	}
	return c.around(r, func() error {
		created, err := asObject(obj, r.GroupVersionKind)
		if err == nil {
			err = c.server.create(created)
		}
		if err != nil {
			return err
		}
		return decode(created, obj)
	})
}

func (c *apiClient) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	r, err := c.request("delete", "", obj)
	if err != nil {
		return err
	}
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	return c.around(r, func() error { return c.server.delete(r.ref, *o) })
}

func (c *apiClient) Patch(_ context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.patch("", obj, patch, (&client.PatchOptions{}).ApplyOptions(opts).FieldManager)
}

func (c *apiClient) patch(subresource string, obj client.Object, patch client.Patch, manager string) error {
	r, err := c.request("patch", subresource, obj)
	if err != nil {
		return err
	}
	data, err := patch.Data(obj)
	if err == nil && c.careless(r) {
		data, err = withoutPrecondition(data)
	}
	if err != nil {
		return err
	}
	return c.around(r, func() error {
		live, err := c.server.patch(r.ref, data, subresource, manager)
		if err != nil {
			return err
		}
		return decode(live, obj)
	})
}

func (c *apiClient) Apply(_ context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	wanted, err := asObject(config, schema.GroupVersionKind{})
	if err != nil {
		return err
	}
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	r := request{"apply", "", refOf(wanted)}
	if c.careless(r) {
		wanted.SetUID("")
		wanted.SetResourceVersion("")
	}
	return c.around(r, func() error {
		return c.server.apply(wanted, o.FieldManager, o.Force != nil && *o.Force)
	})
}

// withoutPrecondition is a merge patch that does not say of which version it is.
func withoutPrecondition(data []byte) ([]byte, error) {
	u := map[string]any{}
	if err := json.Unmarshal(data, &u); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(u, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(u, "metadata", "uid")
	return json.Marshal(u)
}

func (c *apiClient) Status() client.SubResourceWriter { return &statusClient{client: c} }

type statusClient struct {
	client.SubResourceWriter // what nobody here calls
	client                   *apiClient
}

func (s *statusClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.patch("status", obj, patch, "")
}
