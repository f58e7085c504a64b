package podrunner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEnvironment(t *testing.T) {
	from := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	cases := map[string]struct {
		why  string
		env  []corev1.EnvVar
		want []string
		err  string
	}{
		"nothing": {
			why:  "the namespace is what a mounted file would tell",
			want: []string{"POD_NAMESPACE=ns"},
		},
		"values and fields": {
			why: "an annotation is that of the pod, which does not change with the file; an absent one is empty",
			env: []corev1.EnvVar{
				{Name: "HOME", Value: "/tmp"}, {Name: "GENERATION", ValueFrom: from("metadata.annotations['example.org/generation']")},
				{Name: "APP", ValueFrom: from("metadata.labels['app']")}, {Name: "NONE", ValueFrom: from("metadata.labels['no']")},
				{Name: "NAME", ValueFrom: from("metadata.name")}, {Name: "NS", ValueFrom: from("metadata.namespace")},
				{Name: "UID", ValueFrom: from("metadata.uid")}, {Name: "IP", ValueFrom: from("status.podIP")},
			},
			want: []string{"POD_NAMESPACE=ns", "HOME=/tmp", "GENERATION=7", "APP=x", "NONE=", "NAME=p", "NS=ns", "UID=u", "IP=10.0.0.1"},
		},
		"another field": {
			why: "an empty value would be a lie",
			env: []corev1.EnvVar{{Name: "A", ValueFrom: from("spec.nodeName")}},
			err: `env A: field path "spec.nodeName" is not understood: teach test/podrunner`,
		},
		"a Secret": {
			why: "proxies have none",
			env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}},
			err: "env A: only values and fieldRef are understood",
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
			got, err := environment(pod, &corev1.Container{Env: c.env})
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
