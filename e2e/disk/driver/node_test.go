package driver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

// machine is a node of its own, without the calls' transport.
type machine struct {
	*node
	controller *controller
}

// newMachine skips the test where loop devices cannot be used.
func newMachine(t *testing.T) machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to attach loop devices")
	}
	probe := filepath.Join(t.TempDir(), "probe.img")
	require.NoError(t, os.WriteFile(probe, make([]byte, pool.Mebibyte), 0o600))
	if _, err := attach(t.Context(), probe); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	require.NoError(t, detach(t.Context(), probe))
	o := options(t)
	o.Node = "n1"
	volumes, err := pool.Open(o.Directory, o.Pool, flush)
	require.NoError(t, err)
	return machine{node: &node{options: o, pool: volumes}, controller: &controller{options: o, pool: volumes}}
}

// use makes a volume and shows it to a pod at the returned path. After the test
// that is undone. Each call is made twice, as by a kubelet that lost an answer.
func (m machine) use(t *testing.T, request *csi.CreateVolumeRequest) (id, path string) {
	t.Helper()
	made, err := m.controller.CreateVolume(t.Context(), request)
	require.NoError(t, err)
	id = made.Volume.VolumeId
	stage, path := filepath.Join(t.TempDir(), "stage"), filepath.Join(t.TempDir(), "pod", "volume")
	t.Cleanup(func() {
		for range 2 {
			_, err := m.NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path})
			assert.NoError(t, err)
			_, err = m.NodeUnstageVolume(context.Background(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: stage})
			assert.NoError(t, err)
		}
		device, err := deviceOf(context.Background(), m.pool.Image(id))
		assert.NoError(t, err)
		assert.Empty(t, device)
	})
	for range 2 {
		_, err = m.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: stage, VolumeCapability: request.VolumeCapabilities[0]})
		require.NoError(t, err)
		_, err = m.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: stage, TargetPath: path, VolumeCapability: request.VolumeCapabilities[0]})
		require.NoError(t, err)
	}
	return id, path
}

func (m machine) expand(t *testing.T, id, path string, bytes int64, capability *csi.VolumeCapability) {
	t.Helper()
	grown, err := m.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}})
	require.NoError(t, err)
	require.True(t, grown.NodeExpansionRequired)
	_, err = m.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: path, VolumeCapability: capability})
	require.NoError(t, err)
}

func (m machine) total(t *testing.T, id, path string) int64 {
	t.Helper()
	stats, err := m.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	require.NoError(t, err)
	return stats.Usage[0].Total
}

// kinds are the file systems, each with what it needs to grow while it is mounted.
var kinds = []struct {
	name  string
	bytes int64
	grows func(t *testing.T) bool
}{
	{name: "ext4", bytes: 64 * pool.Mebibyte, grows: mayGrowExt4},
	{name: "xfs", bytes: 512 * pool.Mebibyte, grows: func(*testing.T) bool { return true }},
}

func mayGrowExt4(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &held[0]))
	return held[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// formatted is an order for a volume with a kind of file system. It skips the test
// where that cannot be made.
func formatted(t *testing.T, kind, name string, bytes int64) *csi.CreateVolumeRequest {
	t.Helper()
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skipf("needs mkfs.%s: %v", kind, err)
	}
	request := order(name, bytes, "n1")
	request.VolumeCapabilities[0].GetMount().FsType = kind
	return request
}

func TestFilesStayWhenTheirVolumeGrowsInUse(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			m := newMachine(t)
			if !kind.grows(t) {
				t.Skip("needs CAP_SYS_RESOURCE, without which ext4 does not grow while it is mounted")
			}
			request := formatted(t, kind.name, "data", kind.bytes)
			id, path := m.use(t, request)
			require.NoError(t, os.WriteFile(filepath.Join(path, "file"), []byte("text"), 0o600))
			before := m.total(t, id, path)

			m.expand(t, id, path, 2*kind.bytes, request.VolumeCapabilities[0])
			assert.Greater(t, m.total(t, id, path), before+kind.bytes*3/4)
			content, err := os.ReadFile(filepath.Join(path, "file"))
			require.NoError(t, err)
			assert.Equal(t, "text", string(content))
		})
	}
}

func TestAClone(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name+": holds the files of a volume in use, and has the size that was asked for", func(t *testing.T) {
			m := newMachine(t)
			id, path := m.use(t, formatted(t, kind.name, "data", kind.bytes))
			require.NoError(t, os.WriteFile(filepath.Join(path, "file"), []byte("text"), 0o600))

			request := formatted(t, kind.name, "clone", 2*kind.bytes)
			request.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
			copyID, copied := m.use(t, request)
			for _, place := range []string{path, copied} {
				content, err := os.ReadFile(filepath.Join(place, "file"))
				require.NoError(t, err)
				assert.Equal(t, "text", string(content))
			}
			assert.Greater(t, m.total(t, copyID, copied), m.total(t, id, path)+kind.bytes*3/4)
		})
	}
}

func TestAnUnknownFileSystemIsRefused(t *testing.T) {
	_, err := kindOf("ntfs")
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Equal(t, codes.InvalidArgument, status.Code(statusOf(err)))
}

func TestABlockVolumeIsADeviceThatGrows(t *testing.T) {
	m := newMachine(t)
	request := order("raw", 16*pool.Mebibyte, "n1")
	request.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	id, path := m.use(t, request)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)

	m.expand(t, id, path, 32*pool.Mebibyte, request.VolumeCapabilities[0])
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer device.Close()
	size, err := device.Seek(0, 2)
	require.NoError(t, err)
	assert.Equal(t, int64(32*pool.Mebibyte), size)
	assert.Equal(t, size, m.total(t, id, path))

	_, err = m.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "it is in use")
	_, err = m.pool.Volume(id)
	assert.NoError(t, err)
}
