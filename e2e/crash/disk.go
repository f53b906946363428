package crash

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/processes"
)

const (
	// ballast is how many bytes lie in each volume beside what the application writes.
	ballast = 6 << 20
	// A block device begins with the application's lines, of lineSize bytes each; the
	// ballast is behind them.
	deviceSize = 16 << 20
	linesSize  = 1 << 20
	lineSize   = 32
)

// disk is a real volume: a folder, or the file that stands for a block device.
type disk struct {
	path  string
	block bool
}

// diskOf returns the disk of a real volume.
func (w *World) diskOf(real *corev1.PersistentVolume) (disk, error) {
	path, err := w.Bed.Disks.Of(real)
	if err != nil || ptr.Deref(real.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeBlock {
		return disk{path: path}, err
	}
	return disk{path: processes.DeviceIn(path), block: true}, nil
}

// log returns what the application has written.
func (d disk) log() (string, error) {
	if !d.block {
		data, err := os.ReadFile(filepath.Join(d.path, "log"))
		return string(data), err
	}
	data, err := d.part(0, linesSize)
	return string(bytes.TrimRight(data, "\x00")), err
}

// part reads a part of a block device.
func (d disk) part(from, length int64) ([]byte, error) {
	file, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, length)
	_, err = file.ReadAt(data, from)
	return data, err
}

// fill writes the ballast, and returns its sum.
func (d disk) fill() ([sha256.Size]byte, error) {
	data := make([]byte, ballast)
	if _, err := rand.Read(data); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("make ballast: %w", err)
	}
	if !d.block {
		return sha256.Sum256(data), os.WriteFile(filepath.Join(d.path, "ballast"), data, 0o600)
	}
	file, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("write ballast: %w", err)
	}
	_, err = file.WriteAt(data, linesSize)
	return sha256.Sum256(data), errors.Join(err, file.Close())
}

// sum returns that of the ballast.
func (d disk) sum() ([sha256.Size]byte, error) {
	if d.block {
		data, err := d.part(linesSize, ballast)
		return sha256.Sum256(data), err
	}
	data, err := os.ReadFile(filepath.Join(d.path, "ballast"))
	return sha256.Sum256(data), err
}

// laden says whether there is ballast of full size.
func (d disk) laden() bool {
	path := d.path
	if !d.block {
		path = filepath.Join(d.path, "ballast")
	}
	info, err := os.Stat(path)
	return err == nil && info.Size() >= ballast
}
