package sidecars

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// sidecar is a program that calls the driver.
type sidecar struct {
	path string
	args []string
}

// sidecars are the programs of a driver, each with the flags that a driver whose
// volumes are bound to nodes has, and with rates that hold up no test.
func (d *Driver) sidecars() []sidecar {
	csi, retry := "--csi-address="+d.socket(), "--retry-interval-start=200ms"
	programs := []sidecar{
		{path: filepath.Join(d.programs.volumes, "csi-provisioner"), args: []string{
			csi, retry, "--retry-interval-max=2s", "--strict-topology", "--default-fstype=ext4", "--extra-create-metadata",
			"--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=1s",
			"--kube-api-qps=500", "--kube-api-burst=1000", "--kube-api-capacity-qps=50", "--kube-api-capacity-burst=100",
		}},
		{path: filepath.Join(d.programs.volumes, "csi-resizer"), args: []string{
			csi, retry, "--retry-interval-max=2s", "--kube-api-qps=500", "--kube-api-burst=1000",
		}},
	}
	if d.options.AttributesClasses {
		for i := range programs {
			programs[i].args = append(programs[i].args, "--feature-gates=VolumeAttributesClass=true")
		}
	}
	if d.options.Snapshots {
		programs = append(programs,
			sidecar{path: filepath.Join(d.programs.snapshots, "snapshot-controller"), args: []string{
				retry, "--retry-interval-max=2s", "--kube-api-qps=500", "--kube-api-burst=1000",
			}},
			sidecar{path: filepath.Join(d.programs.snapshots, "csi-snapshotter"), args: []string{csi, retry, "--retry-interval-max=2s"}},
		)
	}
	return programs
}

// DefineSnapshots makes the custom resources of snapshots in a cluster. Start does so where
// it is asked for snapshots.
func DefineSnapshots(ctx context.Context, cluster *testbed.Cluster, programs Programs) error {
	if _, err := cluster.Kubectl(ctx, "", "apply", "--server-side", "-k", filepath.Join(programs.snapshots, definitions)); err != nil {
		return fmt.Errorf("make the custom resources of snapshots: %w", err)
	}
	for _, name := range []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"} {
		if _, err := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+name+".snapshot.storage.k8s.io", "--timeout=30s"); err != nil {
			return fmt.Errorf("wait for the custom resources of snapshots: %w", err)
		}
	}
	return nil
}
