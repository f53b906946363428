package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
