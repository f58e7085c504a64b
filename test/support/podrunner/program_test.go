package podrunner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEnvironment(t *testing.T) {
	from := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	limit := func(name, of, divisor string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse(divisor)},
		}}
	}
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("128Mi"), corev1.ResourceCPU: resource.MustParse("500m"),
	}}
	cases := map[string]struct {
		why  string
		env  []corev1.EnvVar
		want []corev1.EnvVar
		err  string
	}{
		"nothing": {
			why:  "the namespace is what a mounted file would tell",
			want: []corev1.EnvVar{{Name: "POD_NAMESPACE", Value: "ns"}},
		},
		"values and fields": {
			why: "an annotation is that of the pod, which does not change with the file; an absent one is empty",
			env: []corev1.EnvVar{
				{Name: "HOME", Value: "/tmp"}, {Name: "GENERATION", ValueFrom: from("metadata.annotations['example.org/generation']")},
				{Name: "APP", ValueFrom: from("metadata.labels['app']")}, {Name: "NONE", ValueFrom: from("metadata.labels['no']")},
				{Name: "NAME", ValueFrom: from("metadata.name")}, {Name: "NS", ValueFrom: from("metadata.namespace")},
				{Name: "UID", ValueFrom: from("metadata.uid")}, {Name: "IP", ValueFrom: from("status.podIP")},
			},
			want: []corev1.EnvVar{
				{Name: "POD_NAMESPACE", Value: "ns"}, {Name: "HOME", Value: "/tmp"}, {Name: "GENERATION", Value: "7"},
				{Name: "APP", Value: "x"}, {Name: "NONE"}, {Name: "NAME", Value: "p"}, {Name: "NS", Value: "ns"},
				{Name: "UID", Value: "u"}, {Name: "IP", Value: "10.0.0.1"},
			},
		},
		"a limit": {
			why: "GOMEMLIMIT is told so: in bytes, and rounded up where they are counted in larger units",
			env: []corev1.EnvVar{limit("GOMEMLIMIT", "limits.memory", "0"), limit("CPUS", "limits.cpu", "1")},
			want: []corev1.EnvVar{
				{Name: "POD_NAMESPACE", Value: "ns"}, {Name: "GOMEMLIMIT", Value: "134217728"}, {Name: "CPUS", Value: "1"},
			},
		},
		"a limit that is not set": {
			why: "the kubelet would say how large its node is, and there is none",
			env: []corev1.EnvVar{limit("A", "limits.ephemeral-storage", "0")},
			err: `env A: resource "limits.ephemeral-storage" is not limited: teach test/support/podrunner`,
		},
		"another field": {
			why: "an empty value would be a lie",
			env: []corev1.EnvVar{{Name: "A", ValueFrom: from("spec.nodeName")}},
			err: `env A: field path "spec.nodeName" is not understood: teach test/support/podrunner`,
		},
		"a Secret": {
			why: "proxies have none",
			env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}},
			err: "env A: only values, fieldRef and resourceFieldRef are understood",
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u",
			Annotations: map[string]string{"example.org/generation": "7"}, Labels: map[string]string{"app": "x"},
		},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := environment(pod, &corev1.Container{Env: c.env, Resources: limits})
			said := ""
			if err != nil {
				said = err.Error()
			}
			if said != c.err {
				t.Errorf("error %q, want %q: %s", said, c.err, c.why)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestInPlace(t *testing.T) {
	got, err := inPlace([]byte(`{"port":8080,"host":"0.0.0.0","unknown":{"a":[9007199254740993]}}`), "127.1.0.2", "127.2.0.2")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"host":"127.1.0.2","port":8080,"target_host":"127.2.0.2","unknown":{"a":[9007199254740993]}}`
	if string(got) != want {
		t.Errorf("got %s, want %s: the rest of the file is not the runner's", got, want)
	}
	if _, err := inPlace([]byte("{"), "127.1.0.2", "127.2.0.2"); err == nil {
		t.Error("a broken file is taken for one")
	}
}

// Pods share one file system and one network here.
func TestArgument(t *testing.T) {
	mounts := []mounted{{"/etc/phasegate/machines", "/tmp/m"}, {"/etc/phasegate/kinds", "/tmp/k"}}
	vars := []corev1.EnvVar{{Name: "NS", Value: "phasegate-system"}}
	cases := map[string]struct{ why, arg, want string }{
		"a directory":        {"it is where the ConfigMap is written to", "--phases-dir=/etc/phasegate/machines", "--phases-dir=/tmp/m"},
		"a file in one":      {"the rest of the path stays", "--kinds-file=/etc/phasegate/kinds/kinds.yaml", "--kinds-file=/tmp/k/kinds.yaml"},
		"an argument alone":  {"not every one is a flag", "/etc/phasegate/kinds", "/tmp/k"},
		"another directory":  {"a name that begins alike is another", "--dir=/etc/phasegate/machines2", "--dir=/etc/phasegate/machines2"},
		"a port":             {"two pods listen at it", "--health-probe-bind-address=:8081", "--health-probe-bind-address=127.1.0.2:8081"},
		"all IPv4 addresses": {"the same, written out", "--a=0.0.0.0:1", "--a=127.1.0.2:1"},
		"all addresses":      {"the same", "--a=[::]:1", "--a=127.1.0.2:1"},
		"nowhere":            {"0 means that nothing listens", "--metrics-bind-address=0", "--metrics-bind-address=0"},
		"one address":        {"it is not for us to change", "--a=10.0.0.1:1", "--a=10.0.0.1:1"},
		"a variable":         {"the kubelet resolves it", "--leader-elect-namespace=$(NS)", "--leader-elect-namespace=phasegate-system"},
		"no variable":        {"it stays as it is, as the kubelet leaves it", "--a=$(NO)$$(NS)", "--a=$(NO)$(NS)"},
		"an odd name":        {"the kubelet looks for the end of a reference alone", "--a=$($$)$(NS)", "--a=$($$)phasegate-system"},
		"no end":             {"it is no reference", "--a=$(NS and $ and $x$", "--a=$(NS and $ and $x$"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := argument(Expand(c.arg, vars), "127.1.0.2", mounts); got != c.want {
				t.Errorf("got %s, want %s: %s", got, c.want, c.why)
			}
		})
	}
}
