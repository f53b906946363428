package fabric

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// play starts the nodes and the real storage of both clusters.
func (f *Fabric) play(ctx context.Context, o Options) (err error) {
	// Both are made before either starts: see instant.New.
	if f.HomeStorage, err = fakeprovisioner.New(f.Home.AdminConfig(), "disk.home.test"); err != nil {
		return err
	}
	if f.WestStorage, err = fakeprovisioner.New(f.West.AdminConfig(), "disk.west.test"); err != nil {
		return err
	}
	if err := serve(ctx, f.HomeStorage, f.Home, HomeWait, HomeNow); err != nil {
		return err
	}
	if err := serve(ctx, f.WestStorage, f.West, WestWait, WestNow); err != nil {
		return err
	}
	zone := func(name string) map[string]string {
		if !o.Zones {
			return nil
		}
		return map[string]string{corev1.LabelTopologyZone: name}
	}
	f.runPods(ctx, o)
	there := []fakekubelet.Node{
		{Name: "west-1", Labels: zone("west"), Drivers: o.drivers("west")},
		{Name: "west-2", Labels: zone("west"), Drivers: o.drivers("west")},
	}
	f.WestNodes, err = fakekubelet.Start(ctx, fakekubelet.Options{Config: f.West.AdminConfig(), Runner: f.WestPods, Exec: o.Exec,
		Nodes: there})
	if err != nil {
		return fmt.Errorf("play the nodes of west: %w", err)
	}
	nodes := []fakekubelet.Node{
		{Name: "home-1", Labels: zone("home"), Drivers: o.drivers("home"), Attach: o.Attach},
		{Name: "home-2", Labels: zone("home"), Drivers: o.drivers("home"), Attach: o.Attach},
	}
	if !o.VirtualNode {
		nodes = append(nodes,
			fakekubelet.Node{Name: WestNode, Labels: zone("west"), Remote: &fakekubelet.Remote{ID: "west", Config: f.West.AdminConfig()}})
	}
	f.HomeNodes, err = fakekubelet.Start(ctx, fakekubelet.Options{Config: f.Home.AdminConfig(), Runner: f.HomePods, Exec: o.Exec,
		Nodes: nodes})
	if err != nil {
		return fmt.Errorf("play the nodes of home: %w", err)
	}
	return nil
}

// runPods gets ready to run the pods whose programs are known, until ctx ends.
func (f *Fabric) runPods(ctx context.Context, o Options) {
	root := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "pods")
	if f.Disks = o.Disks; f.Disks.Root == "" {
		f.Disks.Root = filepath.Join(root, "disks")
	}
	pods := func(cluster *testbed.Cluster) *processes.Processes {
		return processes.New(processes.Config{
			Client: cluster.Client(), Disks: f.Disks, Dir: filepath.Join(root, cluster.Name()), Programs: o.Programs,
		})
	}
	f.HomePods, f.WestPods = pods(f.Home), pods(f.West)
	context.AfterFunc(ctx, func() { f.HomePods.EndAll(); f.WestPods.EndAll() })
}

// serve starts a real provisioner with two classes in its cluster.
func serve(ctx context.Context, p *fakeprovisioner.Provisioner, cluster *testbed.Cluster, wait, now string) error {
	if err := p.Start(ctx); err != nil {
		return fmt.Errorf("start the real storage of %s: %w", cluster.Name(), err)
	}
	deferred := p.Class(wait, storagev1.VolumeBindingWaitForFirstConsumer)
	deferred.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	for _, class := range []*storagev1.StorageClass{deferred, p.Class(now, storagev1.VolumeBindingImmediate)} {
		if _, err := cluster.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make real class %s of %s: %w", class.Name, cluster.Name(), err)
		}
	}
	return nil
}
