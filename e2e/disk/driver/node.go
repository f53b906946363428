package driver

import (
	"context"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

// node attaches the images of this machine as loop devices and mounts them.
type node struct {
	csi.UnimplementedNodeServer
	options Options
	pool    *pool.Pool
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	response := &csi.NodeGetInfoResponse{NodeId: n.options.Node}
	if n.options.TopologyKey != "" {
		response.AccessibleTopology = &csi.Topology{Segments: map[string]string{n.options.TopologyKey: n.options.Node}}
	}
	return response, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, capability := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// NodeStageVolume attaches the volume and, unless it is a block volume, mounts its
// file system, which it makes if there is none.
func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.StagingTargetPath != "", r.VolumeCapability != nil); err != nil {
		return nil, err
	}
	v, err := n.pool.Volume(r.VolumeId)
	if err != nil {
		return nil, statusOf(err)
	}
	device, err := attach(ctx, n.pool.Image(v.ID))
	if err != nil {
		return nil, statusOf(err)
	}
	if r.VolumeCapability.GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	mounted, err := isMounted(r.StagingTargetPath)
	if err != nil || mounted {
		return &csi.NodeStageVolumeResponse{}, statusOf(err)
	}
	kind, err := kindOf(r.VolumeCapability.GetMount().GetFsType())
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, statusOf(kind.mountOn(ctx, device, r.StagingTargetPath, r.VolumeCapability.GetMount().GetMountFlags()))
}

func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.StagingTargetPath != ""); err != nil {
		return nil, err
	}
	if err := unmount(ctx, r.StagingTargetPath); err != nil {
		return nil, statusOf(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, statusOf(detach(ctx, n.pool.Image(r.VolumeId)))
}

// NodePublishVolume shows a staged volume to one pod: its mount, or its device.
func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.StagingTargetPath != "", r.TargetPath != "", r.VolumeCapability != nil); err != nil {
		return nil, err
	}
	mounted, err := isMounted(r.TargetPath)
	if err != nil || mounted {
		return &csi.NodePublishVolumeResponse{}, statusOf(err)
	}
	source := r.StagingTargetPath
	if r.VolumeCapability.GetBlock() != nil {
		if source, err = deviceOf(ctx, n.pool.Image(r.VolumeId)); err != nil {
			return nil, statusOf(err)
		}
		if source == "" {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged", r.VolumeId)
		}
		err = makeFile(r.TargetPath)
	} else {
		err = os.MkdirAll(r.TargetPath, 0o750)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	options := []string{"bind"}
	if r.Readonly {
		options = append(options, "ro")
	}
	return &csi.NodePublishVolumeResponse{}, statusOf(mount(ctx, source, r.TargetPath, options...))
}

func (n *node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.TargetPath != ""); err != nil {
		return nil, err
	}
	if err := unmount(ctx, r.TargetPath); err != nil {
		return nil, statusOf(err)
	}
	if err := os.Remove(r.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, statusOf(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume makes the device as large as its image, and the file system as
// large as the device.
func (n *node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.VolumePath != ""); err != nil {
		return nil, err
	}
	v, err := n.pool.Volume(r.VolumeId)
	if err != nil {
		return nil, statusOf(err)
	}
	device, err := deviceOf(ctx, n.pool.Image(v.ID))
	if err != nil {
		return nil, statusOf(err)
	}
	if device == "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged", r.VolumeId)
	}
	if err := growDevice(ctx, device); err != nil {
		return nil, statusOf(err)
	}
	if r.VolumeCapability.GetBlock() == nil {
		kind, err := kindOf(r.VolumeCapability.GetMount().GetFsType())
		if err == nil {
			err = kind.grow(ctx, device, r.VolumePath)
		}
		if err != nil {
			return nil, statusOf(err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := need(r.VolumeId != "", r.VolumePath != ""); err != nil {
		return nil, err
	}
	info, err := os.Stat(r.VolumePath)
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s: %v", r.VolumeId, r.VolumePath, err)
	}
	if !info.IsDir() {
		v, err := n.pool.Volume(r.VolumeId)
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Bytes}}}, statusOf(err)
	}
	var stats unix.Statfs_t
	if err := unix.Statfs(r.VolumePath, &stats); err != nil {
		return nil, statusOf(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		usage(csi.VolumeUsage_BYTES, stats.Blocks, stats.Bfree, stats.Bavail, uint64(stats.Bsize)),
		usage(csi.VolumeUsage_INODES, stats.Files, stats.Ffree, stats.Ffree, 1),
	}}, nil
}

// usage counts in units of which each is scale.
func usage(unit csi.VolumeUsage_Unit, total, free, available, scale uint64) *csi.VolumeUsage {
	return &csi.VolumeUsage{Unit: unit, Total: int64(total * scale), Used: int64((total - free) * scale), Available: int64(available * scale)}
}
