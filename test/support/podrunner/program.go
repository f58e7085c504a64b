package podrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	kubeconfigFile = "kubeconfig"
	// configFile is the mounted file that says where to listen and whom to ask.
	configFile = "runconfig.json"
)

// containerOf is the container of a pod that is run: the first that has a program.
func (r *Runner) containerOf(pod *corev1.Pod) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return r.Programs[c.Name] != "" })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Containers[i]
}

// program is what the kubelet would run for the container. It works where its files
// are, since it looks there for one that it does not find at the place in its image.
func (r *Runner) program(pod *corev1.Pod, p *running) (harness.Program, error) {
	container := r.containerOf(pod)
	vars, err := environment(pod, container)
	if err != nil {
		return harness.Program{}, fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	mounts, err := mountsOf(pod, container, p.dir)
	if err != nil {
		return harness.Program{}, fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	program := harness.Program{
		Name: pod.Namespace + "-" + pod.Name, Path: r.Programs[container.Name], Dir: p.dir, LogDir: r.Cluster.LogDir,
		Env: []string{"KUBECONFIG=" + filepath.Join(p.dir, kubeconfigFile)},
	}
	if len(mounts) > 0 {
		program.Dir = mounts[0].dir
	}
	for _, v := range vars {
		program.Env = append(program.Env, v.Name+"="+v.Value)
	}
	for _, arg := range container.Args {
		program.Args = append(program.Args, argument(Expand(arg, vars), p.host, mounts))
	}
	return program, nil
}

// mounted is a directory of a container, and the one of this machine that it is.
type mounted struct{ path, dir string }

// mountsOf are the ConfigMaps that a container mounts; other volumes are left out.
func mountsOf(pod *corev1.Pod, container *corev1.Container, dir string) ([]mounted, error) {
	var mounts []mounted
	for _, m := range container.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			return nil, fmt.Errorf("mount %s: subPath is not understood: teach test/support/podrunner", m.Name)
		}
		isFiles := func(v corev1.Volume) bool { return v.Name == m.Name && v.ConfigMap != nil }
		if slices.ContainsFunc(pod.Spec.Volumes, isFiles) {
			mounts = append(mounts, mounted{path: m.MountPath, dir: volumeDir(dir, m.Name)})
		}
	}
	return mounts, nil
}

// everywhere is an address of all interfaces, as the value of a flag.
var everywhere = regexp.MustCompile(`^(0\.0\.0\.0|\[::\])?:([0-9]+)$`)

// argument is what an argument of a container means on this machine, where pods
// share one file system and one network: directories and addresses are its own.
func argument(arg, host string, mounts []mounted) string {
	flag, value, found := strings.Cut(arg, "=")
	if !found {
		flag, value = "", arg
	}
	for _, m := range mounts {
		if rest, in := strings.CutPrefix(value, m.path); in && (rest == "" || rest[0] == '/') {
			value = m.dir + rest
			break
		}
	}
	value = everywhere.ReplaceAllString(value, host+":$2")
	if !found {
		return value
	}
	return flag + "=" + value
}

// Expand is what the kubelet makes of an argument, or of the value of a variable, of a container with these variables: "$$"
// is a dollar sign, "$(NAME)" the value of a variable that there is, and anything else stays as it is.
func Expand(text string, vars []corev1.EnvVar) string {
	var made strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		made.WriteString(before)
		if !found {
			return made.String()
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			made.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			made.WriteString(valueNamed(name, vars))
			text = after
		default:
			made.WriteByte('$')
			text = rest
		}
	}
}

// valueNamed is the reference itself where there is no such variable; of two of a name, the last counts.
func valueNamed(name string, vars []corev1.EnvVar) string {
	for _, v := range slices.Backward(vars) {
		if v.Name == name {
			return v.Value
		}
	}
	return "$(" + name + ")"
}

// environment resolves the variables of a container, none of which has a source
// then; Kubernetes would tell a process its namespace in a file that is not here.
func environment(pod *corev1.Pod, container *corev1.Container) ([]corev1.EnvVar, error) {
	env := []corev1.EnvVar{{Name: "POD_NAMESPACE", Value: pod.Namespace}}
	for _, v := range container.Env {
		value, err := valueOf(pod, container, v)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		if v.ValueFrom == nil {
			value = Expand(value, env) // those before it
		}
		env = append(env, corev1.EnvVar{Name: v.Name, Value: value})
	}
	return env, nil
}

func valueOf(pod *corev1.Pod, container *corev1.Container, v corev1.EnvVar) (string, error) {
	switch from := v.ValueFrom; {
	case from == nil:
		return v.Value, nil
	case from.FieldRef != nil:
		return field(pod, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return limit(container, from.ResourceFieldRef)
	}
	return "", errors.New("only values, fieldRef and resourceFieldRef are understood")
}

// limit is what the downward API answers for a limit of a container.
func limit(container *corev1.Container, from *corev1.ResourceFieldSelector) (string, error) {
	name, found := strings.CutPrefix(from.Resource, "limits.")
	quantity, limited := container.Resources.Limits[corev1.ResourceName(name)]
	if !found || !limited {
		return "", fmt.Errorf("resource %q is not limited: teach test/support/podrunner", from.Resource)
	}
	divisor := max(1, from.Divisor.Value())
	return strconv.FormatInt((quantity.Value()+divisor-1)/divisor, 10), nil
}

// field is what the downward API answers for a path.
func field(pod *corev1.Pod, path string) (string, error) {
	for prefix, values := range map[string]map[string]string{
		"metadata.annotations['": pod.Annotations, "metadata.labels['": pod.Labels,
	} {
		if key, found := strings.CutPrefix(path, prefix); found {
			return values[strings.TrimSuffix(key, "']")], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "status.podIP":
		return pod.Status.PodIP, nil
	}
	return "", fmt.Errorf("field path %q is not understood: teach test/support/podrunner", path)
}

// credentials writes a kubeconfig with a token as the kubelet mounts one: of the
// pod's ServiceAccount, and worth nothing once the pod is gone.
func (r *Runner) credentials(ctx context.Context, pod *corev1.Pod, dir string) error {
	account := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
	return r.Cluster.WriteKubeconfig(ctx, filepath.Join(dir, kubeconfigFile), account,
		&authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

// inPlace is the file with other addresses; the rest stays, whatever it is.
func inPlace(file []byte, host, target string) ([]byte, error) {
	config := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.UseNumber()
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	config["host"], config["target_host"] = host, target
	return json.Marshal(config)
}
