package toolhive

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Enforced are the fields of a spec that the program enforces, if Make makes a proxy
// of them. All others that ask for protection are not enforced.
var Enforced = []string{
	"authzConfig", "authzConfigRef", "oidcConfigRef", "audit", "toolConfigRef", "telemetryConfigRef",
	"sessionStorage", "rateLimiting", "externalAuthConfigRef", "authServerRef", "webhookConfigRef",
}

// Enforces tells whether a field is among Enforced.
func Enforces(field string) bool { return slices.Contains(Enforced, field) }

// Objects are those that a spec names, as they are now. Each that is named must be there.
type Objects struct {
	OIDC, Authz, Tool, Telemetry, ExternalAuth, AuthServer, Webhook *unstructured.Unstructured
	// Policies is the ConfigMap of spec.authzConfig.
	Policies *corev1.ConfigMap
}

// Proxy is what a proxy is made of, besides the image and the pod template.
type Proxy struct {
	Config *RunConfig
	// Bundles are the certificates of authorities among Volumes: without one, no pod starts.
	Bundles []ConfigMapKey
	// CopiedBundles are those of Bundles that a running pod does not get anew, since each is mounted as one file.
	CopiedBundles []ConfigMapKey
	// CopiedSum is a checksum of their content, for whoever has read it.
	CopiedSum string
	// Unsent names the configuration of a credential for the server that the program does not send; empty for none.
	Unsent string
	// Policies are those of the spec, which the file has, too; empty for none.
	Policies string
	// Env, Volumes and Mounts are those of its container that the file speaks of, the
	// secrets among them: they are in no file.
	Env     []corev1.EnvVar
	Volumes []corev1.Volume
	Mounts  []corev1.VolumeMount
	// program reads the file.
	program Program
}

// Make makes the proxy of a server, or tells all that keeps it from that.
func Make(srv *v1beta1.MCPServer, base *runconfig.RunConfig, named Objects, program Program) (*Proxy, []*InvalidError) {
	p := &Proxy{Config: plain(srv, base), program: program}
	var wrong []*InvalidError
	for _, add := range []func(*v1beta1.MCPServer, Objects) *InvalidError{
		p.addTools, p.addTelemetry, p.addAuthz, p.addOIDC, p.addExternalAuth, p.addAuthServer, p.addWebhooks, p.addAudit, p.addRequestLimits, p.addSessions, p.addRateLimits,
	} {
		if err := add(srv, named); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	p.Config.Middlewares = middlewares(p.Config)
	return p, nil
}

// addVar adds a variable that is no secret.
func (p *Proxy) addVar(name, value string) {
	p.Env = append(p.Env, corev1.EnvVar{Name: name, Value: value})
}

// addEnv adds a variable that is a key of a Secret.
func (p *Proxy) addEnv(name string, from SecretKey) {
	p.Env = append(p.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Key: from.Key}}})
}

// addFile mounts the certificate of an authority, a key of a ConfigMap, as a file of that name in a directory of its own.
func (p *Proxy) addFile(volume, dir string, from ConfigMapKey) {
	p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: []corev1.KeyToPath{{Key: from.Key, Path: from.Key}}}}})
	p.Mounts = append(p.Mounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: true})
	p.Bundles = append(p.Bundles, from)
}

// copyFile mounts the certificate of an authority, a key of a ConfigMap, as one file.
func (p *Proxy) copyFile(volume, path string, from ConfigMapKey) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: []corev1.KeyToPath{{Key: from.Key, Path: name}}}}})
	p.Mounts = append(p.Mounts, corev1.VolumeMount{Name: volume, MountPath: path, SubPath: name, ReadOnly: true})
	p.Bundles, p.CopiedBundles = append(p.Bundles, from), append(p.CopiedBundles, from)
}

// mountSecret mounts a key of a Secret as one file. mode is nil for that of Kubernetes.
func (p *Proxy) mountSecret(volume, path string, from SecretKey, mode *int32) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: from.Name, Items: []corev1.KeyToPath{{Key: from.Key, Path: name}}, DefaultMode: mode}}})
	p.Mounts = append(p.Mounts, corev1.VolumeMount{Name: volume, MountPath: path, SubPath: name, ReadOnly: true})
}

// SecretKey is a key of a Secret of the server's namespace.
type SecretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// complete tells whether both are there.
func (k *SecretKey) complete() bool { return k != nil && k.Name != "" && k.Key != "" }

// ConfigMapKey is a key of a ConfigMap of the server's namespace.
type ConfigMapKey struct {
	Name     string `json:"name"`
	Key      string `json:"key"`
	Optional *bool  `json:"optional,omitempty"`
}

// decode reads strictly: what is not known here would not come into the file.
func decode(text []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// decodeField reads a field of the spec.
func decodeField(field string, value *apiextensionsv1.JSON, into any) *InvalidError {
	if err := decode(value.Raw, into); err != nil {
		return invalid(field, "it says what is not understood here, and would not be enforced: %w", err)
	}
	return nil
}

// decodeSpec reads the spec of an object that a field names.
func decodeSpec(field string, object *unstructured.Unstructured, into any) *InvalidError {
	text, err := json.Marshal(object.Object["spec"])
	if err == nil {
		err = decode(text, into)
	}
	if err != nil {
		return invalid(field, "%s %s says what is not understood here, and would not be enforced: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
