package sidecars

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	// AttributesClasses has the sidecars heed VolumeAttributesClasses. Those that are
	// pinned read them as storage.k8s.io/v1beta1, which the API server must serve.
	AttributesClasses bool
	// Snapshots starts what VolumeSnapshots need, and makes their custom resources.
	// In one driver of a cluster at most.
	Snapshots bool
	// NoGroups has the driver, and what VolumeSnapshots need, take none of several volumes at one moment.
	NoGroups bool
	// Attach has volumes attached to nodes: by the attach-detach controller of the control
	// plane, and external-attacher. The nodes must say that they leave that to it.
	Attach bool
	// Folders is a directory with a folder for each volume, by ID, in which the pods of a test keep what is on it: the driver copies it
	// into snapshots and clones.
	Folders string
}

// Driver is a CSI driver with its sidecars, running beside a control plane.
type Driver struct {
	Name      string
	cluster   *testbed.Cluster
	programs  Programs
	directory string
	options   Options
	running   []*testbed.Program // the driver itself is the first
}

// Start starts a driver and its sidecars; they end with the cluster. Nothing is
// mounted: the cluster's kubelets must be played.
func Start(ctx context.Context, cluster *testbed.Cluster, programs Programs, o Options) (*Driver, error) {
	d := &Driver{
		Name: o.Name, cluster: cluster, programs: programs, options: o,
		directory: filepath.Join(filepath.Dir(cluster.LogDirectory()), o.Name),
	}
	if err := os.Mkdir(d.directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of driver %s: %w", o.Name, err)
	}
	if err := d.register(ctx); err != nil {
		return nil, err
	}
	if o.Snapshots {
		if err := DefineSnapshots(ctx, cluster, programs); err != nil {
			return nil, err
		}
	}
	return d, d.Run(ctx)
}

// register makes the driver known to the cluster.
func (d *Driver) register(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace()}}
	if _, err := d.cluster.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the namespace of driver %s: %w", d.Name, err)
	}
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &d.options.Attach, StorageCapacity: ptr.To(true)},
	}
	if _, err := d.cluster.Client().StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make CSIDriver %s: %w", d.Name, err)
	}
	return nil
}

// namespace is where the driver's capacities are published.
func (d *Driver) namespace() string { return strings.ReplaceAll(d.Name, ".", "-") }

func (d *Driver) socket() string { return filepath.Join(d.directory, "s") }

// Run starts the driver and, when it serves, its sidecars. Start has done so already:
// it is for after Kill.
func (d *Driver) Run(ctx context.Context) error {
	err := d.start(d.Name, filepath.Join(d.programs.disk, "disk"),
		"--name="+d.Name, "--directory="+d.directory, "--socket="+d.socket(), fmt.Sprintf("--pool=%d", d.options.Pool),
		fmt.Sprintf("--attach=%t", d.options.Attach), fmt.Sprintf("--no-groups=%t", d.options.NoGroups), "--folders="+d.options.Folders)
	if err != nil {
		return err
	}
	if err := d.awaitSocket(ctx); err != nil {
		return err
	}
	for _, s := range d.sidecars() {
		// The provisioner prefers KUBECONFIG to its flag, and takes from NAMESPACE where to publish capacities.
		args := append([]string{"KUBECONFIG=" + d.cluster.Kubeconfig(), "NAMESPACE=" + d.namespace(), s.path, "--kubeconfig=" +
			d.cluster.Kubeconfig()}, s.args...)
		if err := d.start(d.Name+"-"+filepath.Base(s.path), "/usr/bin/env", args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) start(name, path string, args ...string) error {
	program, err := d.cluster.StartProgram(name, path, args...)
	if err != nil {
		return fmt.Errorf("start a program of driver %s: %w", d.Name, err)
	}
	d.running = append(d.running, program)
	return nil
}

func (d *Driver) awaitSocket(ctx context.Context) error {
	for {
		if _, err := os.Stat(d.socket()); err == nil {
			return nil
		}
		if driver := d.running[0]; !driver.Running() {
			output, _ := driver.Output()
			return fmt.Errorf("driver %s ended before it served: %s", d.Name, output)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for driver %s: %w", d.Name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Kill ends the driver and its sidecars as `kill -9` does: the sidecars end anyway
// when the driver does. Its volumes stay.
func (d *Driver) Kill() {
	for _, program := range slices.Backward(d.running) {
		program.Kill()
	}
	d.running = nil
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
	// Attached are the nodes that it is attached to.
	Attached []string `json:"attached"`
	// Mutable are the parameters of its VolumeAttributesClass.
	Mutable map[string]string `json:"mutable"`
}

// Volumes returns the volumes that the driver has, by ID.
func (d *Driver) Volumes() (map[string]Volume, error) {
	return records(d, "volumes", func(v Volume) string { return v.ID })
}

// Snapshots returns the snapshots that the driver has, by ID.
func (d *Driver) Snapshots() (map[string]Snapshot, error) {
	return records(d, "snapshots", func(s Snapshot) string { return s.ID })
}

// records returns what a folder of the driver has of a kind.
func records[T any](d *Driver, kind string, id func(T) string) (map[string]T, error) {
	paths, err := filepath.Glob(filepath.Join(d.directory, kind, "*.json"))
	if err != nil {
		return nil, err
	}
	found := map[string]T{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // deleted meanwhile
		}
		var one T
		if err == nil {
			err = json.Unmarshal(content, &one)
		}
		if err != nil {
			return nil, fmt.Errorf("read the %s of driver %s: %w", kind, d.Name, err)
		}
		found[id(one)] = one
	}
	return found, nil
}

// Image returns the path of the file that is a volume.
func (d *Driver) Image(id string) string { return filepath.Join(d.directory, "volumes", id+".img") }

// Fault is a failure of a call to the driver.
type Fault struct {
	// Code is that of the answer, as RESOURCE_EXHAUSTED; empty: the call does not fail.
	Code string `json:"code,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// Delay is how long the call takes before anything else, as 2s.
	Delay string `json:"delay,omitempty"`
	// Done has the call do its work before it fails, as when an answer is lost.
	Done bool `json:"done,omitempty"`
}

// Fail has each call of a method, as CreateVolume, fail until Heal.
func (d *Driver) Fail(method string, fault Fault) error { return d.order(method, fault) }

// FailNext has the next calls of a method fail, each as one of the faults says,
// in that order. It ends what Fail has ordered, with no call between that succeeds.
func (d *Driver) FailNext(method string, faults ...Fault) error {
	for i, fault := range faults {
		if err := d.order(fmt.Sprintf("%s.%03d", method, i), fault); err != nil {
			return err
		}
	}
	return d.takeBack(method, nil)
}

// Heal takes back all that was ordered for a method.
func (d *Driver) Heal(method string) error {
	once, err := filepath.Glob(filepath.Join(d.faults(), method+".*"))
	if err != nil {
		return err
	}
	return d.takeBack(method, once)
}

// takeBack takes back what Fail has ordered for a method, and the orders for one call whose files are given.
func (d *Driver) takeBack(method string, once []string) error {
	for _, path := range append(once, filepath.Join(d.faults(), method)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("take back the failures of %s: %w", method, err)
		}
	}
	return nil
}

// Ordered reports whether failures ordered by FailNext have not happened yet.
func (d *Driver) Ordered(method string) (bool, error) {
	once, err := filepath.Glob(filepath.Join(d.faults(), method+".*"))
	return len(once) > 0, err
}

// Ended returns how many calls of a method have ended, well or badly, since Start.
func (d *Driver) Ended(method string) (int, error) {
	calls, err := os.ReadFile(filepath.Join(d.directory, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("read which calls driver %s has had: %w", d.Name, err)
	}
	return strings.Count("\n"+string(calls), "\n"+method+" "), nil
}

func (d *Driver) faults() string { return filepath.Join(d.directory, "faults") }

// order writes an order in one step: the driver reads it at any time.
func (d *Driver) order(name string, fault Fault) error {
	content, err := json.Marshal(fault)
	if err != nil {
		return err
	}
	path := filepath.Join(d.faults(), name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("order a failure of %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("order a failure of %s: %w", name, err)
	}
	return nil
}
