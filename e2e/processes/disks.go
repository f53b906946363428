package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Disks are the folders that stand for volumes, one for each volume of a CSI
// driver, whatever PersistentVolume leads to it.
type Disks struct {
	// Root is the folder that holds them.
	Root string
}

// Of returns the folder of a volume, and makes it if it is not there.
func (d Disks) Of(volume *corev1.PersistentVolume) (string, error) {
	csi := volume.Spec.CSI
	if csi == nil {
		return "", fmt.Errorf("volume %s has no CSI source", volume.Name)
	}
	path := filepath.Join(d.Root, csi.Driver, strings.ReplaceAll(csi.VolumeHandle, "/", "_"))
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("make folder of volume %s: %w", volume.Name, err)
	}
	return path, nil
}

// device is the name of the file that stands for a block volume, in its folder.
const device = "device"

// DeviceIn returns the path of the file that stands for a block volume, by its folder.
func DeviceIn(folder string) string { return filepath.Join(folder, device) }

// device returns the path of the file that stands for a block volume, of its size, and
// makes it if it is not there.
func (d Disks) device(volume *corev1.PersistentVolume) (string, error) {
	folder, err := d.Of(volume)
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(DeviceIn(folder), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make device of volume %s: %w", volume.Name, err)
	}
	info, err := file.Stat()
	if size := volume.Spec.Capacity.Storage().Value(); err == nil && info.Size() < size {
		err = file.Truncate(size)
	}
	return file.Name(), errors.Join(err, file.Close())
}

// Remove removes the folder of a volume that its driver has deleted.
func (d Disks) Remove(volume *corev1.PersistentVolume) error {
	path, err := d.Of(volume)
	return errors.Join(err, os.RemoveAll(path))
}

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
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	if userOf(r.pod) == nil {
		return nil
	}
	var programs []string
	for _, container := range r.pod.Spec.Containers {
		if program := p.Programs[container.Image]; program != "" {
			programs = append(programs, program)
		}
	}
	return r.open(programs)
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
