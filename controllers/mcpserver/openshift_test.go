package mcpserver

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
)

// refusedByOpenShift are the fields of a pod of which its SCC restricted-v2 takes no value but one of the namespace's own.
func refusedByOpenShift(pod corev1.PodSpec) (refused []string) {
	add := func(name string, value *int64) {
		if value != nil {
			refused = append(refused, name)
		}
	}
	if s := pod.SecurityContext; s != nil {
		add("pod runAsUser", s.RunAsUser)
		add("pod runAsGroup", s.RunAsGroup)
		add("pod fsGroup", s.FSGroup)
	}
	for _, c := range pod.Containers {
		if s := c.SecurityContext; s != nil {
			add(c.Name+" runAsUser", s.RunAsUser)
			add(c.Name+" runAsGroup", s.RunAsGroup)
		}
	}
	return refused
}

// OpenShift gives each namespace its own users, and refuses pods that name another.
func TestOnOpenShift(t *testing.T) {
	for name, c := range map[string]struct {
		openShift bool
		want      [][]string
	}{
		"elsewhere": {false, [][]string{
			{"pod runAsUser", "pod runAsGroup", "pod fsGroup", "toolhive runAsUser", "toolhive runAsGroup"},
			{"pod runAsUser", "pod runAsGroup", "pod fsGroup"},
		}},
		"on OpenShift": {true, [][]string{nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpServer)
			s := &steps{Settings: Settings{ProxyImage: "example.org/proxy:1", OpenShift: func(context.Context) (bool, error) { return c.openShift, nil }}, client: w.client}
			if _, err := doWith(t.Context(), s, w.srv, "EnsureWorkload"); err != nil {
				t.Fatal(err)
			}
			proxy := w.deployment().Spec.Template.Spec
			told := slices.Contains(proxy.Containers[0].Env, corev1.EnvVar{Name: "OPERATOR_OPENSHIFT", Value: "true"}) // whatever the program of the proxy is
			if told != c.openShift {
				t.Errorf("the proxy is told that this is OpenShift: %v, want %v", told, c.openShift)
			}
			cfg := backend.Config{Namespace: w.srv.Namespace, Run: runConfig(w.srv), Image: "example.org/fetch:1", AnyUser: told}
			if _, err := backend.Deploy(t.Context(), w.client, cfg); err != nil {
				t.Fatal(err)
			}
			server := get(w, &appsv1.StatefulSet{}, "fetch").Spec.Template.Spec
			if diff := cmp.Diff(c.want, [][]string{refusedByOpenShift(proxy), refusedByOpenShift(server)}); diff != "" {
				t.Errorf("users and groups of proxy and server (-want +got):\n%s", diff)
			}
			for _, pod := range []corev1.PodSpec{proxy, server} {
				if root := pod.SecurityContext.RunAsNonRoot; root == nil || !*root {
					t.Error("the pod may run as root")
				}
			}
		})
	}
}

func TestItIsNotKnownWhetherThisIsOpenShift(t *testing.T) {
	w := newWorld(t, httpServer)
	s := &steps{Settings: Settings{OpenShift: func(context.Context) (bool, error) { return false, errors.New("busy") }}, client: w.client}
	if _, err := doWith(t.Context(), s, w.srv, "EnsureWorkload"); err == nil {
		t.Error("a proxy is made while it is not known how")
	}
}
