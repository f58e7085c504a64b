package backend

import (
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
)

// stickySeconds is how long a client that says nothing is led to the same pod:
// a session lives in one pod.
const stickySeconds = 1800

// labelsOf are the labels of everything made for a server, over others.
func labelsOf(run *runconfig.RunConfig, others map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, others)
	maps.Copy(labels, run.ContainerLabels)
	maps.Copy(labels, v1beta1.BackendSelector(run.Name))
	labels["toolhive"] = "true"
	labels[v1beta1.LabelName] = run.Name
	return labels
}

// statefulSet makes the backend. live is what is there, nil if nothing: it decides
// what cannot be changed. owned is the part of it that we applied, nil if none.
func statefulSet(cfg Config, live, owned *appsv1.StatefulSet) (*appsv1.StatefulSet, error) {
	template, err := podTemplate(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the pods of %s: %w", cfg.Run.Name, err)
	}
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Run.Name, Labels: labelsOf(cfg.Run, nil)},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: v1beta1.BackendSelector(cfg.Run.Name)},
			// One bad pod does not hold up the repair of the others, or its own.
			PodManagementPolicy: appsv1.ParallelPodManagement,
			ServiceName:         v1beta1.HeadlessServiceName(cfg.Run.Name),
			Template:            *template,
		},
	}
	s.Spec.Replicas = replicas(cfg.Run, owned)
	if live != nil {
		s.Spec.Selector, s.Spec.PodManagementPolicy, s.Spec.ServiceName = live.Spec.Selector, live.Spec.PodManagementPolicy, live.Spec.ServiceName
	}
	stamp(s, owned, cfg.Run.MCPServerGeneration)
	return s, nil
}

// replicas are those of the file. Where it names none, a number that we set before
// stays until an autoscaler has chosen: without it, the API server would make it 1.
func replicas(run *runconfig.RunConfig, owned *appsv1.StatefulSet) *int32 {
	if run.ScalingConfig != nil && run.ScalingConfig.BackendReplicas != nil {
		return run.ScalingConfig.BackendReplicas
	}
	if owned != nil {
		return owned.Spec.Replicas
	}
	return nil
}

// stamp writes the generations: of this apply on the object, of the last change of
// content on the pods. A proxy without one leaves those that are there.
func stamp(s, owned *appsv1.StatefulSet, generation int64) {
	var before *corev1.PodTemplateSpec
	if owned != nil {
		before = &owned.Spec.Template
	}
	onPods := freeze.Stamp(&s.Spec.Template, before, generation)
	texts := [2]string{strconv.FormatInt(generation, 10), strconv.FormatInt(onPods, 10)}
	if generation <= 0 {
		if owned == nil {
			return
		}
		texts = [2]string{owned.Annotations[v1beta1.AnnotationGeneration], before.Annotations[v1beta1.AnnotationGeneration]}
	}
	for i, meta := range []*metav1.ObjectMeta{&s.ObjectMeta, &s.Spec.Template.ObjectMeta} {
		if texts[i] != "" {
			metav1.SetMetaDataAnnotation(meta, v1beta1.AnnotationGeneration, texts[i])
		}
	}
}

// services are those of a backend that speaks HTTP: one to call it by, one to give
// its pods names. Neither is reachable from outside, whatever the port's number.
func services(cfg Config) []*corev1.Service {
	if cfg.Run.Transport == v1beta1.TransportStdio {
		return nil
	}
	named := func(name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: name, Labels: labelsOf(cfg.Run, nil)},
			Spec: corev1.ServiceSpec{
				Type:     corev1.ServiceTypeClusterIP,
				Selector: v1beta1.BackendSelector(cfg.Run.Name),
				Ports: []corev1.ServicePort{{
					Name: fmt.Sprintf("port-%d", cfg.Run.TargetPort), Port: cfg.Run.TargetPort,
					TargetPort: intstr.FromInt32(cfg.Run.TargetPort), Protocol: corev1.ProtocolTCP,
				}},
			},
		}
	}
	call, names := named(v1beta1.BackendServiceName(cfg.Run.Name)), named(v1beta1.HeadlessServiceName(cfg.Run.Name))
	call.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	call.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(stickySeconds))}}
	names.Spec.ClusterIP = corev1.ClusterIPNone
	return []*corev1.Service{names, call}
}
