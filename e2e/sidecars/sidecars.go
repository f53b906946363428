// Package sidecars runs the CSI driver of e2e/disk beside a control plane, with the
// real sidecars of Kubernetes: external-provisioner, external-resizer and, if wanted,
// external-attacher and csi-snapshotter with the snapshot controller. So a test sees what they do with
// our claims and volumes, not what we think that they do.
//
// The programs are built from Go modules: those of the sidecars are pinned in the
// modules below this folder, two, for their releases need different versions of the
// libraries that they share. They are commands, which cannot be imported, so each
// is a program of its own.
package sidecars

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Programs are the directories that hold the built programs: that of the driver, and that
// of the sidecars, which has the custom resources of snapshots too.
type Programs struct {
	disk, sidecars string
}

// Build returns the programs: from the user's cache, or built, which takes a few
// minutes once and is told to out.
func Build(ctx context.Context, out io.Writer) (p Programs, err error) {
	if p.disk, err = built.Disk.Build(ctx, out); err != nil {
		return p, err
	}
	p.sidecars, err = built.Sidecars.Build(ctx, out)
	return p, err
}

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
		{path: filepath.Join(d.programs.sidecars, "csi-provisioner"), args: []string{
			csi, retry, "--retry-interval-max=2s", "--strict-topology", "--default-fstype=ext4", "--extra-create-metadata",
			"--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=1s",
			"--kube-api-qps=500", "--kube-api-burst=1000", "--kube-api-capacity-qps=50", "--kube-api-capacity-burst=100",
		}},
		{path: filepath.Join(d.programs.sidecars, "csi-resizer"), args: []string{
			csi, retry, "--retry-interval-max=2s", "--kube-api-qps=500", "--kube-api-burst=1000",
		}},
	}
	if d.options.AttributesClasses {
		for i := range programs {
			programs[i].args = append(programs[i].args, "--feature-gates=VolumeAttributesClass=true")
		}
	}
	if d.options.Attach {
		programs = append(programs, sidecar{path: filepath.Join(d.programs.sidecars, "csi-attacher"), args: []string{
			csi, retry, "--retry-interval-max=2s", "--kube-api-qps=500", "--kube-api-burst=1000",
		}})
	}
	if d.options.Snapshots {
		groups := fmt.Sprintf("--feature-gates=CSIVolumeGroupSnapshot=%t", !d.options.NoGroups)
		programs = append(programs,
			sidecar{path: filepath.Join(d.programs.sidecars, "snapshot-controller"), args: []string{
				retry, "--retry-interval-max=2s", "--kube-api-qps=500", "--kube-api-burst=1000", groups,
			}},
			sidecar{path: filepath.Join(d.programs.sidecars, "csi-snapshotter"), args: []string{csi, retry, "--retry-interval-max=2s", groups}},
		)
	}
	return programs
}

// DefineSnapshots makes the custom resources of snapshots in a cluster. Start does so where
// it is asked for snapshots.
func DefineSnapshots(ctx context.Context, cluster *testbed.Cluster, programs Programs) error {
	if _, err := cluster.Kubectl(ctx, "", "apply", "--server-side", "-k", filepath.Join(programs.sidecars, built.Definitions)); err != nil {
		return fmt.Errorf("make the custom resources of snapshots: %w", err)
	}
	for _, name := range []string{
		"volumesnapshots.snapshot", "volumesnapshotcontents.snapshot", "volumesnapshotclasses.snapshot",
		"volumegroupsnapshots.groupsnapshot", "volumegroupsnapshotcontents.groupsnapshot", "volumegroupsnapshotclasses.groupsnapshot",
	} {
		if _, err := cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+name+".storage.k8s.io", "--timeout=30s"); err != nil {
			return fmt.Errorf("wait for the custom resources of snapshots: %w", err)
		}
	}
	return nil
}

// Snapshot is what the driver knows of a snapshot.
type Snapshot struct {
	ID string `json:"id"`
	// Source is the ID of the volume that it is of.
	Source string `json:"volumeID"`
	// Group is the ID of the group that it was taken with; empty: it was taken alone.
	Group string `json:"group"`
	// Created is when, in nanoseconds since 1970.
	Created int64 `json:"created"`
}
