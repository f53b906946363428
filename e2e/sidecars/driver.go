package sidecars

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Options say what a driver is like.
type Options struct {
	// Name is the driver's, unlike that of any other driver of the cluster. The
	// cluster's nodes must have it in their CSINode objects, with the topology key
	// kubernetes.io/hostname, before its classes are used.
	Name string
	// Pool is how many bytes the volumes of one node may have together.
	Pool int64
	// Snapshots starts what VolumeSnapshots need, and makes their custom resources.
	// In one driver of a cluster at most.
	Snapshots bool
}

// Driver is a CSI driver with its sidecars, running beside a control plane.
type Driver struct {
	Name      string
	cluster   *testbed.Cluster
	programs  Programs
	directory string
	pool      int64
	process   *testbed.Program
}

// Start starts a driver and its sidecars; they end with the cluster. Nothing is
// mounted: the cluster's kubelets must be played.
func Start(ctx context.Context, cluster *testbed.Cluster, programs Programs, o Options) (*Driver, error) {
	d := &Driver{
		Name: o.Name, cluster: cluster, programs: programs, pool: o.Pool,
		directory: filepath.Join(filepath.Dir(cluster.LogDirectory()), o.Name),
	}
	if err := os.Mkdir(d.directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of driver %s: %w", o.Name, err)
	}
	if err := d.register(ctx); err != nil {
		return nil, err
	}
	if err := d.Run(ctx); err != nil {
		return nil, err
	}
	for _, s := range d.sidecars(o) {
		if s.prepare != nil {
			if err := s.prepare(ctx); err != nil {
				return nil, err
			}
		}
		// The provisioner prefers KUBECONFIG to its flag, and takes from NAMESPACE where to publish capacities.
		args := append([]string{"KUBECONFIG=" + cluster.Kubeconfig(), "NAMESPACE=" + d.namespace(), s.path, "--kubeconfig=" + cluster.Kubeconfig()}, s.args...)
		if _, err := cluster.StartProgram(o.Name+"-"+filepath.Base(s.path), "/usr/bin/env", args...); err != nil {
			return nil, fmt.Errorf("start a sidecar of driver %s: %w", o.Name, err)
		}
	}
	return d, nil
}

// register makes the driver known to the cluster.
func (d *Driver) register(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace()}}
	if _, err := d.cluster.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the namespace of driver %s: %w", d.Name, err)
	}
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: ptr.To(false), StorageCapacity: ptr.To(true)},
	}
	if _, err := d.cluster.Client().StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make CSIDriver %s: %w", d.Name, err)
	}
	return nil
}

// namespace is where the driver's capacities are published.
func (d *Driver) namespace() string { return strings.ReplaceAll(d.Name, ".", "-") }

func (d *Driver) socket() string { return filepath.Join(d.directory, "s") }

// Run starts the driver itself, without its sidecars, and waits until it serves.
func (d *Driver) Run(ctx context.Context) (err error) {
	d.process, err = d.cluster.StartProgram(d.Name, filepath.Join(d.programs.disk, "disk"),
		"--name="+d.Name, "--directory="+d.directory, "--socket="+d.socket(), fmt.Sprintf("--pool=%d", d.pool))
	if err != nil {
		return fmt.Errorf("start driver %s: %w", d.Name, err)
	}
	for {
		if _, err := os.Stat(d.socket()); err == nil {
			return nil
		}
		if !d.process.Running() {
			output, _ := d.process.Output()
			return fmt.Errorf("driver %s ended before it served: %s", d.Name, output)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for driver %s: %w", d.Name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Kill ends the driver itself as `kill -9` does. Its volumes stay; Run starts it again.
func (d *Driver) Kill() {
	d.process.Kill()
	_ = os.Remove(d.socket())
}

// Class returns a storage class of the driver, to be created.
func (d *Driver) Class(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: d.Name,
		VolumeBindingMode: &mode, AllowVolumeExpansion: ptr.To(true),
	}
}

// Volume is what the driver knows of a volume.
type Volume struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Node   string `json:"node"`
	Bytes  int64  `json:"bytes"`
	Source string `json:"source"`
}

// Volumes returns the volumes that the driver has, by ID.
func (d *Driver) Volumes() (map[string]Volume, error) {
	paths, err := filepath.Glob(filepath.Join(d.directory, "volumes", "*.json"))
	if err != nil {
		return nil, err
	}
	volumes := map[string]Volume{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // deleted meanwhile
		}
		var v Volume
		if err == nil {
			err = json.Unmarshal(content, &v)
		}
		if err != nil {
			return nil, fmt.Errorf("read the volumes of driver %s: %w", d.Name, err)
		}
		volumes[v.ID] = v
	}
	return volumes, nil
}

// Image returns the path of the file that is a volume.
func (d *Driver) Image(id string) string { return filepath.Join(d.directory, "volumes", id+".img") }
