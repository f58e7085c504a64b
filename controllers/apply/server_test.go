package apply_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/controllers/apply"
	"github.com/phasegate/phasegate/test/support/harness"
)

const manager = "apply-test"

// shared has no controllers: the tests play them, and each has its own namespace.
var shared = harness.Shared{Start: func() (*harness.Cluster, error) {
	return harness.Start(context.Background(), harness.Options{Own: true,
		Without: []string{"fakenodes", "scheduler", "controller-manager"}})
}}

func TestMain(m *testing.M) { shared.Main(m) }

// world is a namespace, an applier and a count of the writes that it sent.
type world struct {
	apply.Applier
	*testing.T
	// admin is not counted.
	admin     client.WithWatch
	namespace string
	writes    int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, admin: shared.Cluster(t).Client}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "apply-"}}
	if err := w.admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.namespace = namespace.Name
	w.Applier = apply.Applier{Manager: manager,
		Owner: metav1.OwnerReference{APIVersion: "v1", Kind: "Room", Name: "ours", UID: "11111111-1111-1111-1111-111111111111",
			Controller: new(true), BlockOwnerDeletion: new(true)},
		Client: interceptor.NewClient(w.admin, interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, body runtime.ApplyConfiguration, o ...client.ApplyOption) error {
				w.writes++
				return c.Apply(ctx, body, o...)
			},
		}),
	}
	return w
}

// put reads and puts, as an action does.
func put[T client.Object](w *world, desired T) (T, bool, error) {
	w.Helper()
	desired.SetNamespace(w.namespace)
	live, found, err := apply.Read(w.Context(), w.Client, desired)
	if err != nil {
		w.Fatal(err)
	}
	return apply.Put(w.Context(), w.Applier, live, found, desired)
}

func mustPut[T client.Object](w *world, desired T) T {
	w.Helper()
	now, _, err := put(w, desired)
	if err != nil {
		w.Fatal(err)
	}
	return now
}

// edit is what somebody does with kubectl.
func (w *world) edit(obj client.Object, as, patch string) {
	w.Helper()
	err := w.admin.Patch(w.Context(), obj.DeepCopyObject().(client.Object),
		client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner(as))
	if err != nil {
		w.Fatal(err)
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

func template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: meta(""),
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "example.org/" + name, Args: []string{"run"},
				Env: []corev1.EnvVar{{Name: "EMPTY"}, {Name: "GENERATION", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("1024Mi")}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}},
				SecurityContext: &corev1.SecurityContext{Privileged: new(false)},
			}},
			SecurityContext: &corev1.PodSecurityContext{},
			Volumes:         []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func deployment(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	t := template(name)
	t.Labels = map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: t}}
	for _, change := range changes {
		change(d)
	}
	return d
}

// everyKind is one object of each kind that the package applies.
func everyKind() []client.Object {
	d := deployment("workload")
	return []client.Object{
		d,
		&appsv1.StatefulSet{ObjectMeta: meta("workload"), Spec: appsv1.StatefulSetSpec{
			Selector: d.Spec.Selector, Template: d.Spec.Template, ServiceName: "workload"}},
		&corev1.Service{ObjectMeta: meta("workload"), Spec: corev1.ServiceSpec{
			Selector: d.Labels, SessionAffinity: corev1.ServiceAffinityClientIP,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}}}},
		&corev1.ConfigMap{ObjectMeta: meta("workload"), Data: map[string]string{"file": "content\n", "empty": ""}},
		&corev1.ServiceAccount{ObjectMeta: meta("workload"), AutomountServiceAccountToken: new(false)},
		&rbacv1.Role{ObjectMeta: meta("workload"), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta("workload"),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "workload"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "workload", Namespace: "default"}}},
	}
}

func TestSecondPutSendsNothing(t *testing.T) {
	w := newWorld(t)
	for _, desired := range everyKind() {
		first, wrote, err := put(w, desired)
		if err != nil || !wrote {
			t.Fatalf("%T: wrote = %v, error = %v", desired, wrote, err)
		}
		if controller := metav1.GetControllerOf(first); controller == nil || controller.UID != w.Owner.UID {
			t.Errorf("%T: controller = %v, want the owner", desired, controller)
		}
		w.writes = 0
		second, wrote, err := put(w, desired)
		if err != nil || wrote || w.writes != 0 {
			t.Errorf("%T again: wrote = %v with %d requests, error = %v", desired, wrote, w.writes, err)
		}
		if first.GetResourceVersion() != second.GetResourceVersion() {
			t.Errorf("%T again: it has another resourceVersion", desired)
		}
	}
}

func TestQuantitiesAreComparedByValue(t *testing.T) {
	w := newWorld(t)
	mustPut(w, deployment("workload"))
	w.writes = 0
	mustPut(w, deployment("workload", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	}))
	if w.writes != 0 {
		t.Errorf("%d requests for 1 instead of 1000m and 1Gi instead of 1024Mi, want none", w.writes)
	}
}

// TestOthers is what becomes of what others write.
func TestOthers(t *testing.T) {
	type seen struct {
		Image, Args, Replicas string
		Env                   int
		Labels, Annotations   map[string]string
		Restarted             string
	}
	look := func(d *appsv1.Deployment) seen {
		c := d.Spec.Template.Spec.Containers[0]
		return seen{Image: c.Image, Args: cmp.Diff(c.Args, []string{"run"}), Replicas: string(rune('0' + *d.Spec.Replicas)), Env: len(c.Env),
			Labels: d.Labels, Annotations: d.Annotations, Restarted: d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]}
	}
	untouched := func(change func(*seen)) seen {
		s := seen{Image: "example.org/workload", Replicas: "1", Env: 2, Labels: map[string]string{"app": "workload"}}
		change(&s)
		return s
	}
	cases := map[string]struct {
		why, as, edit string
		writes        int
		want          seen
	}{
		"a field of ours is changed": {why: "drift is put right",
			as: "kubectl-edit", edit: `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.org/other"}]}}}}`,
			writes: 1, want: untouched(func(*seen) {})},
		"a list of ours gets an element": {why: "arguments are one value, and ours",
			as: "kubectl-edit", edit: `{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["run","--debug"]}]}}}}`,
			writes: 1, want: untouched(func(*seen) {})},
		"a label of ours is removed": {why: "what finds objects by label must find this one",
			as: "kubectl-label", edit: `{"metadata":{"labels":{"app":null}}}`,
			writes: 1, want: untouched(func(*seen) {})},
		"a label is added": {why: "policy engines label what they have seen",
			as: "policy", edit: `{"metadata":{"labels":{"team":"a"},"annotations":{"seen":"yes"}}}`,
			want: untouched(func(s *seen) {
				s.Labels = map[string]string{"app": "workload", "team": "a"}
				s.Annotations = map[string]string{"seen": "yes"}
			})},
		"a variable is added": {why: "variables are a map by name: this one is not ours",
			as: "kubectl-set", edit: `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"MORE","value":"1"}]}]}}}}`,
			want: untouched(func(s *seen) { s.Env = 3 })},
		"kubectl rollout restart": {why: "nobody reverts a restart",
			as: "kubectl-rollout", edit: `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"noon"}}}}}`,
			want: untouched(func(s *seen) { s.Restarted = "noon" })},
		"an autoscaler": {why: "replicas that we do not name are another's",
			as: "hpa", edit: `{"spec":{"replicas":5}}`,
			want: untouched(func(s *seen) { s.Replicas = "5" })},
	}
	w := newWorld(t)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w.T = t
			first := mustPut(w, deployment("workload"))
			t.Cleanup(func() {
				if err := w.admin.Delete(context.Background(), first); err != nil {
					t.Error(err)
				}
			})
			w.edit(first, test.as, test.edit)
			w.writes = 0
			now := mustPut(w, deployment("workload"))
			if diff := cmp.Diff(test.want, look(now)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if mustPut(w, deployment("workload")); w.writes != test.writes {
				t.Errorf("%d requests, want %d: %s", w.writes, test.writes, test.why)
			}
		})
	}
}

func TestFieldNotWantedAnyMoreGoes(t *testing.T) {
	w := newWorld(t)
	mustPut(w, deployment("workload", func(d *appsv1.Deployment) {
		d.Labels["extra"] = "yes"
		d.Spec.Template.Spec.Containers[0].Env = append(d.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "MORE", Value: "1"})
	}))
	now := mustPut(w, deployment("workload"))
	if diff := cmp.Diff(map[string]string{"app": "workload"}, now.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if env := now.Spec.Template.Spec.Containers[0].Env; len(env) != 2 {
		t.Errorf("env = %v, want two variables", env)
	}
}

func TestReplicasTakenOverByAnAutoscalerArePutBackOnce(t *testing.T) {
	w := newWorld(t)
	three := func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(3)) }
	w.edit(mustPut(w, deployment("workload", three)), "hpa", `{"spec":{"replicas":5}}`)
	if now := mustPut(w, deployment("workload", three)); *now.Spec.Replicas != 3 {
		t.Errorf("replicas = %d, want 3: a number that is named is ours", *now.Spec.Replicas)
	}
}

func TestRefused(t *testing.T) {
	theirs := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Room", Name: "theirs", UID: "22222222-2222-2222-2222-222222222222", Controller: new(true)}}
	nobodys := &apply.NotOursError{}
	cases := map[string]struct {
		why    string
		owners []metav1.OwnerReference
		adopt  func(client.Object) bool
		want   *apply.NotOursError
	}{
		"another's":         {why: "two controllers would fight over it", owners: theirs, want: &apply.NotOursError{Controller: "Room theirs"}},
		"another's, adopts": {why: "adoption is for what has no controller", owners: theirs, adopt: func(client.Object) bool { return true }, want: &apply.NotOursError{Controller: "Room theirs"}},
		"nobody's":          {why: "a name proves nothing", want: nobodys},
		"nobody's, asked":   {why: "the applier says no", adopt: func(client.Object) bool { return false }, want: nobodys},
		"nobody's, adopted": {why: "the applier says yes", adopt: func(o client.Object) bool { return o.GetName() == "workload" }},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Adopt = test.adopt
			there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "workload", Namespace: w.namespace, OwnerReferences: test.owners}, Data: map[string]string{"file": "theirs"}}
			if err := w.admin.Create(t.Context(), there); err != nil {
				t.Fatal(err)
			}
			now, _, err := put(w, &corev1.ConfigMap{ObjectMeta: meta("workload"), Data: map[string]string{"file": "ours"}})
			if test.want == nil {
				if err != nil || now.Data["file"] != "ours" {
					t.Errorf("data = %v, error = %v: %s", now.Data, err, test.why)
				}
				return
			}
			var got *apply.NotOursError
			if !errors.As(err, &got) {
				t.Fatalf("error = %v, want a NotOursError: %s", err, test.why)
			}
			test.want.Object = "ConfigMap " + w.namespace + "/workload"
			if diff := cmp.Diff(test.want, got); diff != "" || w.writes != 0 {
				t.Errorf("%d writes, want 0; error (-want +got):\n%s", w.writes, diff)
			}
		})
	}
}

func TestDeletedObjectIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	desired := &corev1.ConfigMap{ObjectMeta: meta("workload")}
	first := mustPut(w, desired)
	w.edit(first, "kubectl", `{"metadata":{"finalizers":["test.phasegate.dev/hold"]}}`)
	if err := w.admin.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_, _, err := put(w, desired)
	var got *apply.DeletingError
	if want := (&apply.DeletingError{Object: "ConfigMap " + w.namespace + "/workload"}); !errors.As(err, &got) || *got != *want {
		t.Errorf("error = %v, want %v", err, want)
	}
}

func TestOtherKindsAreNamed(t *testing.T) {
	_, err := apply.Owned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}, manager)
	want := `read what apply-test applied to *v1.Pod b/a: *v1.Pod is not a kind that this package applies: add it to extract`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}
