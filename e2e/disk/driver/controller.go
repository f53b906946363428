package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

type controller struct {
	csi.UnimplementedControllerServer
	options Options
	pool    *pool.Pool
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	} {
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
		Bytes: r.CapacityRange.GetRequiredBytes(), Limit: r.CapacityRange.GetLimitBytes(),
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
	if c.options.Node != "" {
		device, err := deviceOf(ctx, c.pool.Image(r.VolumeId))
		if err != nil {
			return nil, statusOf(err)
		}
		if device != "" {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use: node %s has it as %s", r.VolumeId, c.options.Node, device)
		}
	}
	return &csi.DeleteVolumeResponse{}, statusOf(c.pool.Delete(r.VolumeId))
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
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

func (c *controller) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
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
		several := mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
		if several && capability.GetBlock() == nil {
			return status.Error(codes.InvalidArgument, "the file system of a disk can be written to on one node at a time: ask for ReadWriteOnce, or for volumeMode Block")
		}
	}
	return nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
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
		pool.ErrNotFound: codes.NotFound, pool.ErrInvalid: codes.OutOfRange,
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
