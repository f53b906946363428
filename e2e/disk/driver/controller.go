package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

type controller struct {
	csi.UnimplementedControllerServer
	options Options
	pool    *pool.Pool
}

func (c *controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	capabilities := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	}
	if c.options.Attach {
		capabilities = append(capabilities, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	for _, capability := range capabilities {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := need(r.Name != "", len(r.VolumeCapabilities) > 0); err != nil {
		return nil, err
	}
	if err := checkMutable(r.MutableParameters); err != nil {
		return nil, err
	}
	if err := checkAccess(r.VolumeCapabilities, c.options.TopologyKey != "" && r.Parameters[shareParameter] == "true"); err != nil {
		return nil, err
	}
	order := pool.Order{
		Name: r.Name, Nodes: c.nodesOf(r.AccessibilityRequirements),
		Bytes: max(r.CapacityRange.GetRequiredBytes(), c.options.Least), Limit: r.CapacityRange.GetLimitBytes(),
		FromVolume:   r.VolumeContentSource.GetVolume().GetVolumeId(),
		FromSnapshot: r.VolumeContentSource.GetSnapshot().GetSnapshotId(),
		Parameters:   r.Parameters, Mutable: r.MutableParameters,
	}
	v, err := c.pool.Make(order)
	if err != nil {
		return nil, statusOf(err)
	}
	volume := c.describe(v)
	volume.ContentSource = r.VolumeContentSource
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

// nodesOf returns where a volume may be, best first.
func (c *controller) nodesOf(requirement *csi.TopologyRequirement) []string {
	var nodes []string
	if c.options.TopologyKey == "" {
		return nil
	}
	for _, topology := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
		if node := topology.Segments[c.options.TopologyKey]; node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (c *controller) describe(v pool.Volume) *csi.Volume {
	volume := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: v.Parameters}
	if c.options.TopologyKey != "" && v.Node != "" {
		volume.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{c.options.TopologyKey: v.Node}}}
	}
	return volume
}

// DeleteVolume refuses what a node still has: nothing in Kubernetes keeps a volume
// of a driver without attachments until its last node has given it back.
func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := need(r.VolumeId != ""); err != nil {
		return nil, err
	}
	if v, err := c.pool.Volume(r.VolumeId); err == nil && len(v.Attached) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %q", r.VolumeId, v.Attached)
	}
	if err := c.checkUnused(ctx, r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, statusOf(c.pool.Delete(r.VolumeId))
}

// checkUnused refuses a volume that this node has as a device.
func (c *controller) checkUnused(ctx context.Context, id string) error {
	if c.options.Node == "" {
		return nil
	}
	device, err := deviceOf(ctx, c.pool.Image(id))
	if err != nil {
		return statusOf(err)
	}
	if device != "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use: node %s has it as %s", id, c.options.Node, device)
	}
	return nil
}

// ControllerPublishVolume attaches a volume to a node: to one at a time, unless it is asked
// for with a mode for several.
func (c *controller) ControllerPublishVolume(_ context.Context,
	r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := need(r.VolumeId != "", r.NodeId != "", r.VolumeCapability != nil); err != nil {
		return nil, err
	}
	v, err := c.pool.Volume(r.VolumeId)
	if err != nil {
		return nil, statusOf(err)
	}
	if c.options.Node != "" && r.NodeId != c.options.Node || v.Node != "" && r.NodeId != v.Node {
		return nil, status.Errorf(codes.NotFound, "there is no node %s that can reach volume %s", r.NodeId, v.ID)
	}
	one := false
	switch r.VolumeCapability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		one = true
	default: // for several nodes
	}
	return &csi.ControllerPublishVolumeResponse{}, statusOf(c.pool.Attach(v.ID, r.NodeId, one))
}

// ControllerUnpublishVolume detaches a volume, and refuses one that the node still uses:
// nobody may ask for that.
func (c *controller) ControllerUnpublishVolume(ctx context.Context,
	r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := need(r.VolumeId != ""); err != nil {
		return nil, err
	}
	if err := c.checkUnused(ctx, r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, statusOf(c.pool.Detach(r.VolumeId, r.NodeId))
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse,
	error) {
	if err := need(r.VolumeId != "", r.CapacityRange != nil); err != nil {
		return nil, err
	}
	v, err := c.pool.Grow(r.VolumeId, r.CapacityRange.GetRequiredBytes(), r.CapacityRange.GetLimitBytes())
	if err != nil {
		return nil, statusOf(err)
	}
	// The loop device must grow too, and the file system on it.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: c.options.Node != ""}, nil
}

func (c *controller) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse,
	error) {
	if err := need(r.VolumeId != ""); err != nil {
		return nil, err
	}
	if err := checkMutable(r.MutableParameters); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, statusOf(c.pool.Modify(r.VolumeId, r.MutableParameters))
}

// checkMutable refuses all but iops, which must be a number.
func checkMutable(parameters map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if key != "iops" {
			return status.Errorf(codes.InvalidArgument, "there is no parameter %q that can be changed", key)
		}
		if _, err := strconv.ParseUint(parameters[key], 10, 32); err != nil {
			return status.Errorf(codes.InvalidArgument, "parameter iops is no number: %q", parameters[key])
		}
	}
	return nil
}

// shareParameter is the parameter of a class, with value "true", by which file systems
// may be asked for with modes for several nodes: pods of all sorts then share one, on the
// one node that its topology allows.
const shareParameter = "share"

// checkAccess refuses file systems that several nodes write to at a time: each would
// destroy what the others write.
func checkAccess(capabilities []*csi.VolumeCapability, share bool) error {
	if share {
		return nil
	}
	for _, capability := range capabilities {
		mode := capability.GetAccessMode().GetMode()
		several := mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER ||
			mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
		if several && capability.GetBlock() == nil {
			return status.Error(codes.InvalidArgument, "the file system of a disk can be written to on one node at a time: ask for ReadWriteOnce, "+
				"or for volumeMode Block")
		}
	}
	return nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context,
	r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := need(r.VolumeId != "", len(r.VolumeCapabilities) > 0); err != nil {
		return nil, err
	}
	if _, err := c.pool.Volume(r.VolumeId); err != nil {
		return nil, statusOf(err)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.VolumeContext, VolumeCapabilities: r.VolumeCapabilities, Parameters: r.Parameters,
	}}, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	free := c.pool.Free(r.AccessibleTopology.GetSegments()[c.options.TopologyKey])
	return &csi.GetCapacityResponse{AvailableCapacity: free, MaximumVolumeSize: wrapperspb.Int64(free)}, nil
}

// need is an error unless all that a call needs is there.
func need(present ...bool) error {
	if slices.Contains(present, false) {
		return status.Error(codes.InvalidArgument, "a field that the call needs is missing")
	}
	return nil
}

// statusOf is the answer that CSI has for an error of the pool.
func statusOf(err error) error {
	if status.Code(err) != codes.Unknown {
		return err // it says itself what the answer is
	}
	for known, code := range map[error]codes.Code{
		pool.ErrFull: codes.ResourceExhausted, pool.ErrConflict: codes.AlreadyExists,
		pool.ErrNotFound: codes.NotFound, pool.ErrInvalid: codes.OutOfRange, pool.ErrInUse: codes.FailedPrecondition,
		pool.ErrGrouped: codes.InvalidArgument,
	} {
		if errors.Is(err, known) {
			return status.Error(code, err.Error())
		}
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, next, err := page(c.pool.Volumes(), r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range volumes {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: c.describe(v)})
	}
	return response, nil
}

func (c *controller) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := need(r.Name != "", r.SourceVolumeId != ""); err != nil {
		return nil, err
	}
	s, err := c.pool.Snap(r.Name, r.SourceVolumeId)
	if err != nil {
		return nil, statusOf(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(s)}, nil
}

func (c *controller) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := need(r.SnapshotId != ""); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, statusOf(c.pool.DeleteSnapshot(r.SnapshotId))
}

func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	wanted := slices.DeleteFunc(c.pool.Snapshots(), func(s pool.Snapshot) bool {
		return (r.SnapshotId != "" && s.ID != r.SnapshotId) || (r.SourceVolumeId != "" && s.VolumeID != r.SourceVolumeId)
	})
	snapshots, next, err := page(wanted, r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range snapshots {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: describeSnapshot(s)})
	}
	return response, nil
}

func describeSnapshot(s pool.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.VolumeID, SizeBytes: s.Bytes,
		CreationTime: timestamppb.New(time.Unix(0, s.Created)), ReadyToUse: true, GroupSnapshotId: s.Group,
	}
}

// page returns the entries that a list asks for, and the token of the next page.
func page[T any](all []T, token string, most int32) (entries []T, next string, err error) {
	start := 0
	if token != "" {
		if start, err = strconv.Atoi(token); err != nil || start < 0 || start > len(all) {
			return nil, "", status.Errorf(codes.Aborted, "there is no page %q: list from the start again", token)
		}
	}
	end := len(all)
	if most > 0 && start+int(most) < end {
		end = start + int(most)
		next = strconv.Itoa(end)
	}
	return all[start:end], next, nil
}
