package mcpserver

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// specProblems are all reasons for which a server cannot be run as its spec says,
// the weightiest first. Much of it the CRD refuses already; but the CRD may be
// older or another's. It is pure.
func specProblems(proxy Flavour, srv *server) (problems []*problem) {
	if len(unprotected(proxy, srv)) > 0 {
		problems = append(problems, enforcementProblem(proxy, srv))
	}
	if p := podTemplateProblem(srv); p != nil {
		problems = append(problems, p)
	}
	if text := texts(errors.Join(append(fieldErrors(&srv.Spec), nameError(srv.Name), requestError(proxy, &srv.Spec), proxyEnvError(proxy, &srv.Spec))...)); text != "" {
		problems = append(problems, newProblem("InvalidSpec", "%s", text))
	}
	return problems
}

// nameError is about servers that are older than the rule of the CRD: the backend
// would select the pods of all proxies of the namespace.
func nameError(name string) error {
	if name == v1beta1.ProxyLabels(name)["app"] {
		return fmt.Errorf("metadata.name is %q, which is the label of every proxy: make a server of another name, and delete this one", name)
	}
	return nil
}

// requestError is about the limits of single requests.
func requestError(proxy Flavour, s *v1beta1.MCPServerSpec) error {
	if s.MaxRequestBodySize < 0 {
		return fmt.Errorf("spec.maxRequestBodySize is %d: write a number of bytes", s.MaxRequestBodySize)
	}
	if proxy != ToolHive && s.MaxRequestBodySize > runconfig.MaxRequestBody {
		return fmt.Errorf("spec.maxRequestBodySize is %d, and this proxy holds requests of at most %d bytes: write that or less, or let ToolHive's proxy serve", s.MaxRequestBodySize, runconfig.MaxRequestBody)
	}
	if s.ProxyReadTimeout == "" {
		return nil
	}
	if d, err := time.ParseDuration(s.ProxyReadTimeout); err != nil || d < 0 {
		return fmt.Errorf("spec.proxyReadTimeout is %q: write a time such as 1m", s.ProxyReadTimeout)
	}
	return nil
}

// proxyEnvError is about variables of the proxy that it does not know: what one is to allow or refuse would be
// missed by nobody.
func proxyEnvError(proxy Flavour, s *v1beta1.MCPServerSpec) error {
	var unknown []string
	for _, e := range proxyOverrides(s).Env {
		if proxy != ToolHive && strings.HasPrefix(e.Name, v1beta1.ProxyEnvPrefix) && !slices.Contains(v1beta1.ProxyEnv(), e.Name) {
			unknown = append(unknown, e.Name)
		}
	}
	if unknown == nil {
		return nil
	}
	return fmt.Errorf("spec.resourceOverrides.proxyDeployment.env has %s, which this proxy does not read: correct the name (%s), or remove it", list(unknown), list(v1beta1.ProxyEnv()))
}

// texts puts the lines of joined errors into one.
func texts(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// fieldErrors are what is wrong with single fields.
func fieldErrors(s *v1beta1.MCPServerSpec) []error {
	errs := []error{imageError(s.Image), portError("proxyPort", s.ProxyPort), portError("mcpPort", s.MCPPort), accountError(s.ServiceAccount)}
	errs = append(errs, envErrors(s)...)
	errs = append(errs, volumeErrors(s.Volumes)...)
	return append(errs, setResources(&corev1.Container{}, "spec.resources", s.Resources),
		setProxyResources(&corev1.Container{}, s, corev1.ResourceRequirements{}))
}

func imageError(image string) error {
	if image == "" || strings.HasPrefix(image, "-") || strings.ContainsFunc(image, isSpace) {
		return fmt.Errorf("spec.image is %q: write the name of an image", image)
	}
	return nil
}

func isSpace(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }

// portError takes 0 for the default.
func portError(name string, port int32) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("spec.%s is %d: write a port from 1 to 65535", name, port)
	}
	return nil
}

func accountError(name *string) error {
	if name == nil {
		return nil
	}
	if wrong := validation.IsDNS1123Subdomain(*name); len(wrong) > 0 {
		return fmt.Errorf("spec.serviceAccount is %q, which no ServiceAccount is called: %s", *name, list(wrong))
	}
	if strings.HasSuffix(*name, v1beta1.ProxyRBACName("")) {
		return fmt.Errorf("spec.serviceAccount is %q, which is the account of a proxy: name an account of the server's own", *name)
	}
	return nil
}

// envErrors is about the variables of server and proxy: a name that comes twice
// would make the API server refuse the pods, a line break splits a value in tools
// that read runconfig.json.
func envErrors(s *v1beta1.MCPServerSpec) (errs []error) {
	seen := map[string]bool{}
	name := func(path, name string) {
		if wrong := validation.IsRelaxedEnvVarName(name); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s %q is not the name of a variable: %s", path, name, list(wrong)))
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("%s %q is there twice: the variables of spec.env and spec.secrets are those of one container", path, name))
		}
		seen[name] = true
	}
	value := func(path string, e v1beta1.EnvVar) {
		if strings.ContainsAny(e.Value, "\r\n") {
			errs = append(errs, fmt.Errorf("%s %s has a line break in its value: take it from a Secret (spec.secrets)", path, e.Name))
		}
	}
	for _, e := range s.Env {
		name("spec.env", e.Name)
		value("spec.env", e)
	}
	for _, secret := range s.Secrets {
		name("spec.secrets", secretEnvName(secret))
	}
	clear(seen)
	for _, e := range proxyOverrides(s).Env {
		name("spec.resourceOverrides.proxyDeployment.env", e.Name)
	}
	return errs
}

func volumeErrors(volumes []v1beta1.Volume) (errs []error) {
	mounted := map[string]bool{}
	for _, v := range volumes {
		if wrong := validation.IsDNS1123Label(v.Name); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("spec.volumes %q cannot be the name of a volume: %s", v.Name, list(wrong)))
		}
		if !path.IsAbs(v.HostPath) || slices.Contains(strings.Split(v.HostPath, "/"), "..") {
			errs = append(errs, fmt.Errorf("spec.volumes %s: hostPath is %q: write an absolute path that does not go up", v.Name, v.HostPath))
		}
		if !path.IsAbs(v.MountPath) || strings.Contains(v.MountPath, ":") || mounted[v.MountPath] {
			errs = append(errs, fmt.Errorf("spec.volumes %s: mountPath is %q: write an absolute path without a colon, each once", v.Name, v.MountPath))
		}
		mounted[v.MountPath] = true
	}
	return errs
}
