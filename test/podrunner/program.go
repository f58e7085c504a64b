package podrunner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/harness"
)

const (
	kubeconfigFile = "kubeconfig"
	// configFile is the mounted file that says where to listen and whom to ask.
	configFile = "runconfig.json"
)

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Containers[i]
}

// program is what the kubelet would run for the container.
func (r *Runner) program(pod *corev1.Pod, dir string) (harness.Program, error) {
	container := containerOf(pod, r.Container)
	env, err := environment(pod, container)
	if err != nil {
		return harness.Program{}, fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return harness.Program{
		Name: pod.Namespace + "-" + pod.Name, Path: r.Binary, Args: container.Args, Dir: dir, LogDir: r.Cluster.LogDir,
		Env: append(env, "KUBECONFIG="+filepath.Join(dir, kubeconfigFile)),
	}, nil
}

// environment resolves the variables of a container; Kubernetes would tell a
// process its namespace in a file that is not here.
func environment(pod *corev1.Pod, container *corev1.Container) ([]string, error) {
	env := []string{"POD_NAMESPACE=" + pod.Namespace}
	for _, v := range container.Env {
		value := v.Value
		if from := v.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("env %s: only values and fieldRef are understood", v.Name)
			}
			var err error
			if value, err = field(pod, from.FieldRef.FieldPath); err != nil {
				return nil, fmt.Errorf("env %s: %w", v.Name, err)
			}
		}
		env = append(env, v.Name+"="+value)
	}
	return env, nil
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
	return "", fmt.Errorf("field path %q is not understood: teach test/podrunner", path)
}

// credentials writes a kubeconfig with a token as the kubelet mounts one: of the
// pod's ServiceAccount, and worth nothing once the pod is gone.
func (r *Runner) credentials(ctx context.Context, pod *corev1.Pod, dir string) error {
	account := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
	return r.Cluster.WriteKubeconfig(ctx, filepath.Join(dir, kubeconfigFile), account,
		&authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

// mount brings the files of the ConfigMaps that a pod mounts up to date.
func (r *Runner) mount(pod *corev1.Pod, p *running) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		cm, err := r.configMaps.ConfigMaps(pod.Namespace).Get(volume.ConfigMap.Name)
		if err != nil {
			return fmt.Errorf("mount %s in pod %s/%s: %w", volume.Name, pod.Namespace, pod.Name, err)
		}
		for name, text := range cm.Data {
			if err := writeFile(filepath.Join(p.dir, name), text, p); err != nil {
				return fmt.Errorf("mount %s in pod %s/%s: %w", volume.Name, pod.Namespace, pod.Name, err)
			}
		}
	}
	return nil
}

// writeFile replaces a file as a whole, if it is not the same already.
func writeFile(path, text string, p *running) error {
	data := []byte(text)
	if filepath.Base(path) == configFile {
		var err error
		if data, err = inPlace(data, p.host, p.target); err != nil {
			return err
		}
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
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
