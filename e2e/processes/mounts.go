package processes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// prepare makes the folders of a pod's volumes.
func (p *Processes) prepare(ctx context.Context, r *run, volumes map[string]*corev1.PersistentVolume) error {
	r.folders = map[string]string{}
	for _, volume := range r.pod.Spec.Volumes {
		path := filepath.Join(r.dir, "volumes", volume.Name)
		switch {
		case volumes[volume.Name] != nil:
			of := p.Disks.Of
			if ptr.Deref(volumes[volume.Name].Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
				of = p.Disks.device
			}
			var err error
			if path, err = of(volumes[volume.Name]); err != nil {
				return err
			}
		case volume.Secret != nil:
			if err := p.secret(ctx, r.pod.Namespace, volume.Secret, path); err != nil {
				return err
			}
		default:
			if err := os.MkdirAll(path, 0o700); err != nil {
				return fmt.Errorf("make folder of volume %s: %w", volume.Name, err)
			}
		}
		r.folders[volume.Name] = path
	}
	for _, container := range r.pod.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			if mount.SubPath == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Join(r.folders[mount.Name], mount.SubPath), 0o755); err != nil {
				return fmt.Errorf("make folder %s of volume %s: %w", mount.SubPath, mount.Name, err)
			}
		}
	}
	return os.MkdirAll(r.dir, 0o700)
}

// secret writes the files of a Secret.
func (p *Processes) secret(ctx context.Context, namespace string, source *corev1.SecretVolumeSource, path string) error {
	secret, err := p.Client.CoreV1().Secrets(namespace).Get(ctx, source.SecretName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", source.SecretName, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make folder of Secret %s: %w", source.SecretName, err)
	}
	names := map[string]string{}
	for _, item := range source.Items {
		names[item.Key] = item.Path
	}
	for key, data := range secret.Data {
		name := key
		if len(source.Items) > 0 {
			if name = names[key]; name == "" {
				continue
			}
		}
		mode := os.FileMode(ptr.Deref(source.DefaultMode, 0o644)) & os.ModePerm
		if err := os.WriteFile(filepath.Join(path, name), data, mode); err != nil {
			return fmt.Errorf("write key %s of Secret %s: %w", key, source.SecretName, err)
		}
	}
	return nil
}
