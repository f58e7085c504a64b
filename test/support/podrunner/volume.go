package podrunner

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// dataLink is the kubelet's: the files of a volume are links into the directory
// that it points to, so that all of them change in one moment.
const dataLink = "..data"

// volumeDir is where the files of a volume are.
func volumeDir(dir, volume string) string { return filepath.Join(dir, "volumes", volume) }

// mount brings the files of the ConfigMaps that a pod mounts up to date.
func (r *Runner) mount(pod *corev1.Pod, p *running) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap == nil {
			continue
		}
		files, err := r.filesOf(pod.Namespace, volume.ConfigMap)
		if err == nil {
			err = p.place(files)
		}
		if err == nil {
			err = publish(volumeDir(p.dir, volume.Name), files)
		}
		if err != nil {
			return fmt.Errorf("mount %s in pod %s/%s: %w", volume.Name, pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// filesOf are the files that a volume shows.
func (r *Runner) filesOf(namespace string, volume *corev1.ConfigMapVolumeSource) (map[string]string, error) {
	cm, err := r.configMaps.ConfigMaps(namespace).Get(volume.Name)
	if apierrs.IsNotFound(err) && ptr.Deref(volume.Optional, false) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	if len(volume.Items) == 0 {
		return maps.Clone(cm.Data), nil
	}
	files := map[string]string{}
	for _, item := range volume.Items {
		text, found := cm.Data[item.Key]
		if !found {
			return nil, fmt.Errorf("ConfigMap %s has no key %s", volume.Name, item.Key)
		}
		files[item.Path] = text
	}
	return files, nil
}

// place gives the file that says where to listen the addresses of this pod.
func (p *running) place(files map[string]string) error {
	text, found := files[configFile]
	if !found {
		return nil
	}
	placed, err := inPlace([]byte(text), p.host, p.target)
	files[configFile] = string(placed)
	return err
}

// publish makes the files the content of a directory as the kubelet does: written
// aside, then shown by the exchange of one link. The same files change nothing.
func publish(dir string, files map[string]string) error {
	names := slices.Sorted(maps.Keys(files))
	sum := fnv.New64a()
	for _, name := range names {
		fmt.Fprintf(sum, "%q%q", name, files[name]) // writes to a hash do not fail
	}
	data := fmt.Sprintf("..%016x", sum.Sum64())
	link := filepath.Join(dir, dataLink)
	before, _ := os.Readlink(link) // none at first
	if before == data {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, data), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, data, name), []byte(files[name]), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(show(dir, data, names), forget(dir, before))
}

// show exchanges the link, and makes those of new files.
func show(dir, data string, names []string) error {
	link := filepath.Join(dir, dataLink)
	if err := errors.Join(os.Symlink(data, link+"_tmp"), os.Rename(link+"_tmp", link)); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// forget removes what was shown before, and the links of files that are gone.
func forget(dir, before string) error {
	if before == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(dir, before))
}
