package mcpserver

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// service is where clients reach the proxy.
func service(srv *server) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: objectMeta(srv, v1beta1.ProxyServiceName(srv.Name))}
	if o := srv.Spec.ResourceOverrides; o != nil && o.ProxyService != nil {
		svc.Labels = over(o.ProxyService.Labels, svc.Labels)
		svc.Annotations = o.ProxyService.Annotations
	}
	port := proxyPort(&srv.Spec)
	svc.Spec = corev1.ServiceSpec{
		Type:            corev1.ServiceTypeClusterIP,
		Selector:        v1beta1.ProxyLabels(srv.Name),
		Ports:           []corev1.ServicePort{{Name: "http", Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP}},
		SessionAffinity: cmp.Or(corev1.ServiceAffinity(srv.Spec.SessionAffinity), corev1.ServiceAffinityClientIP),
	}
	return svc
}
