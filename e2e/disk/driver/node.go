package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

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
	if n.options.Attach && !slices.Contains(v.Attached, n.options.Node) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to node %s", v.ID, n.options.Node)
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
	return &csi.NodeStageVolumeResponse{},
		statusOf(kind.mountOn(ctx, device, r.StagingTargetPath, r.VolumeCapability.GetMount().GetMountFlags()))
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

// run runs a command and returns what it prints; an error holds what it says.
func run(ctx context.Context, name string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// deviceOf returns the loop device of an image, empty if it is not attached.
func deviceOf(ctx context.Context, image string) (string, error) {
	text, err := run(ctx, "losetup", "--associated", image, "--noheadings", "--output", "NAME")
	if err != nil {
		return "", err
	}
	device, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(device), nil
}

// attach attaches an image, unless it is attached, and returns its device.
func attach(ctx context.Context, image string) (string, error) {
	device, err := deviceOf(ctx, image)
	if err != nil || device != "" {
		return device, err
	}
	return run(ctx, "losetup", "--find", "--show", image)
}

// detach undoes attach; the device is gone when nobody uses it any more.
func detach(ctx context.Context, image string) error {
	device, err := deviceOf(ctx, image)
	if err != nil || device == "" {
		return err
	}
	_, err = run(ctx, "losetup", "--detach", device)
	return err
}

// growDevice makes a device as large as its image.
func growDevice(ctx context.Context, device string) error {
	_, err := run(ctx, "losetup", "--set-capacity", device)
	return err
}

// mount mounts a device or binds a path. The target is made if it is missing.
func mount(ctx context.Context, source, target string, options ...string) error {
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
	}
	args := []string{source, target}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := run(ctx, "mount", args...)
	return err
}

func unmount(ctx context.Context, target string) error {
	mounted, err := isMounted(target)
	if err != nil || !mounted {
		return err
	}
	_, err = run(ctx, "umount", target)
	return err
}

// isMounted reports whether something is mounted at a path.
func isMounted(target string) (bool, error) {
	if real, err := filepath.EvalSymlinks(target); err == nil {
		target = real
	}
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer file.Close()
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(target)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == escaped {
			return true, nil
		}
	}
	return false, lines.Err()
}

// flush writes what file systems on loop devices hold in memory into the images.
func flush() { unix.Sync() }

// makeFile makes an empty file for a device to be bound to.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// fileSystem is how one kind is made and grown.
type fileSystem struct {
	format []string // the command that makes one on a device, without the device
	// mount are options that it is mounted with beside those that are asked for.
	mount []string
	// fit makes one that is not mounted as large as its device; nil: it cannot.
	fit func(ctx context.Context, device string) error
	// grow makes one as large as its device while it is mounted.
	grow func(ctx context.Context, device, mountPoint string) error
}

var fileSystems = map[string]fileSystem{
	"ext4": {
		format: []string{"mkfs.ext4", "-q", "-m", "0"},
		fit: func(ctx context.Context, device string) error {
			// It wants to be checked before; code 1 says that something was mended.
			if _, err := run(ctx, "e2fsck", "-f", "-p", device); err != nil && exitCode(err) != 1 {
				return err
			}
			_, err := run(ctx, "resize2fs", device)
			return err
		},
		// This needs CAP_SYS_RESOURCE.
		grow: func(ctx context.Context, device, _ string) error {
			_, err := run(ctx, "resize2fs", device)
			return err
		},
	},
	"xfs": {
		format: []string{"mkfs.xfs", "-q"},
		mount:  []string{"nouuid"}, // a clone has the UUID of its source, and both may be mounted
		grow: func(ctx context.Context, _, mountPoint string) error {
			_, err := run(ctx, "xfs_growfs", mountPoint)
			return err
		},
	},
}

// kindOf returns the file system of a name; ext4 if there is none.
func kindOf(name string) (fileSystem, error) {
	if name == "" {
		name = "ext4"
	}
	kind, ok := fileSystems[name]
	if !ok {
		return kind, status.Errorf(codes.InvalidArgument, "file systems are ext4 and xfs, not %q", name)
	}
	return kind, nil
}

// mountOn mounts the file system of a device, which is made if there is nothing on
// it, as large as the device: that of a clone is as large as its source.
func (f fileSystem) mountOn(ctx context.Context, device, target string, options []string) error {
	if err := f.formatEmpty(ctx, device); err != nil {
		return err
	}
	if f.fit != nil {
		if err := f.fit(ctx, device); err != nil {
			return err
		}
	}
	if err := mount(ctx, device, target, append(options, f.mount...)...); err != nil {
		return err
	}
	if f.fit != nil {
		return nil
	}
	return f.grow(ctx, device, target)
}

// formatEmpty makes a file system on a device that has nothing on it. What is there
// is never formatted: blkid says with code 2 that it knows nothing of it.
func (f fileSystem) formatEmpty(ctx context.Context, device string) error {
	_, err := run(ctx, "blkid", "--probe", device)
	if err == nil || exitCode(err) != 2 {
		return err
	}
	_, err = run(ctx, f.format[0], append(f.format[1:len(f.format):len(f.format)], device)...)
	return err
}

// exitCode is that of a command that failed, -1 if it did not run.
func exitCode(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	return -1
}
