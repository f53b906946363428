package driver

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

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
		CreationTime: timestamppb.New(time.Unix(0, s.Created)), ReadyToUse: true,
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
