package driver

import (
	"context"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

// groupController takes snapshots of several volumes at one moment.
type groupController struct {
	csi.UnimplementedGroupControllerServer
	pool *pool.Pool
	none bool
}

func (g *groupController) GroupControllerGetCapabilities(context.Context,
	*csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	if g.none {
		return &csi.GroupControllerGetCapabilitiesResponse{}, nil
	}
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (g *groupController) CreateVolumeGroupSnapshot(_ context.Context,
	r *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if g.none {
		return nil, status.Error(codes.Unimplemented, "this driver takes no snapshots of several volumes")
	}
	if err := need(r.Name != "", len(r.SourceVolumeIds) > 0); err != nil {
		return nil, err
	}
	id, taken, err := g.pool.SnapGroup(r.Name, r.SourceVolumeIds)
	if err != nil {
		return nil, statusOf(err)
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: describeGroup(id, taken)}, nil
}

func (g *groupController) DeleteVolumeGroupSnapshot(_ context.Context,
	r *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if err := need(r.GroupSnapshotId != ""); err != nil {
		return nil, err
	}
	if err := checkMembers(g.pool.Group(r.GroupSnapshotId), r.SnapshotIds); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, statusOf(g.pool.DeleteGroup(r.GroupSnapshotId))
}

func (g *groupController) GetVolumeGroupSnapshot(_ context.Context,
	r *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if err := need(r.GroupSnapshotId != ""); err != nil {
		return nil, err
	}
	taken := g.pool.Group(r.GroupSnapshotId)
	if len(taken) == 0 {
		return nil, status.Errorf(codes.NotFound, "there is no group %s", r.GroupSnapshotId)
	}
	if err := checkMembers(taken, r.SnapshotIds); err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: describeGroup(r.GroupSnapshotId, taken)}, nil
}

// checkMembers refuses a list of snapshots that are not those of a group. What is left of one whose
// deletion was begun may be fewer.
func checkMembers(taken []pool.Snapshot, ids []string) error {
	for _, s := range taken {
		if !slices.Contains(ids, s.ID) {
			return status.Errorf(codes.InvalidArgument, "snapshot %s is of group %s, too: name all that are", s.ID, s.Group)
		}
	}
	return nil
}

func describeGroup(id string, taken []pool.Snapshot) *csi.VolumeGroupSnapshot {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: id, ReadyToUse: true}
	for _, s := range taken {
		group.Snapshots = append(group.Snapshots, describeSnapshot(s))
		group.CreationTime = timestamppb.New(time.Unix(0, s.Created))
	}
	return group
}
