package driver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

const gibibyte = 1 << 30

// serve runs a driver as its program would and returns what stops it.
func serve(t *testing.T, o Options) (*grpc.ClientConn, func()) {
	t.Helper()
	o.Socket = filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	// A client that finds no socket tries again only after a second.
	for _, err := os.Stat(o.Socket); err != nil && len(ended) == 0; _, err = os.Stat(o.Socket) {
		time.Sleep(time.Millisecond)
	}
	connection, err := grpc.NewClient("unix://"+o.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	_, err = csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ended)
			assert.NoError(t, connection.Close())
		}
	}
	t.Cleanup(stop)
	return connection, stop
}

func options(t *testing.T) Options {
	return Options{Name: "disk.test", Directory: t.TempDir(), Pool: 10 * gibibyte, TopologyKey: "host"}
}

func order(name string, bytes int64, nodes ...string) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
		AccessibilityRequirements: &csi.TopologyRequirement{},
	}
	for _, node := range nodes {
		r.AccessibilityRequirements.Preferred = append(r.AccessibilityRequirements.Preferred,
			&csi.Topology{Segments: map[string]string{"host": node}})
	}
	return r
}

func TestVolumesOutliveTheDriver(t *testing.T) {
	o := options(t)
	connection, stop := serve(t, o)
	made, err := csi.NewControllerClient(connection).CreateVolume(t.Context(), order("pvc-1", gibibyte, "n1"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"host": "n1"}, made.Volume.AccessibleTopology[0].Segments)
	stop()

	connection, _ = serve(t, o)
	client := csi.NewControllerClient(connection)
	again, err := client.CreateVolume(t.Context(), order("pvc-1", gibibyte, "n2", "n1"))
	require.NoError(t, err)
	assert.Equal(t, made.Volume.VolumeId, again.Volume.VolumeId)
	list, err := client.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	assert.Len(t, list.Entries, 1)
}

func TestARoomThatIsFullIsPassedOver(t *testing.T) {
	connection, _ := serve(t, options(t))
	client := csi.NewControllerClient(connection)
	for _, node := range []string{"n1", "n2"} {
		made, err := client.CreateVolume(t.Context(), order("pvc-"+node, 6*gibibyte, "n1", "n2"))
		require.NoError(t, err)
		assert.Equal(t, node, made.Volume.AccessibleTopology[0].Segments["host"])
	}
	_, err := client.CreateVolume(t.Context(), order("pvc-3", 6*gibibyte, "n1", "n2"))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	capacity, err := client.GetCapacity(t.Context(),
		&csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"host": "n1"}}})
	require.NoError(t, err)
	assert.Equal(t, int64(4*gibibyte), capacity.AvailableCapacity)
}

func TestOrderedFailures(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []codes.Code // of calls to make the same volume, one after the other
		left  int          // volumes after the first call
	}{
		{name: "nothing is ordered", want: []codes.Code{codes.OK, codes.OK}, left: 1},
		{name: "a lasting one fails each call", files: map[string]string{"CreateVolume": `{"code":"RESOURCE_EXHAUSTED"}`},
			want: []codes.Code{codes.ResourceExhausted, codes.ResourceExhausted}},
		{name: "one with a suffix is used up", files: map[string]string{"CreateVolume.1": `{"code":"INTERNAL"}`},
			want: []codes.Code{codes.Internal, codes.OK}},
		{name: "they are used in order, the lasting one last", files: map[string]string{
			"CreateVolume.2": `{"code":"ABORTED"}`, "CreateVolume.1": `{"code":"INTERNAL"}`, "CreateVolume": `{"code":"UNAVAILABLE"}`},
			want: []codes.Code{codes.Internal, codes.Aborted, codes.Unavailable, codes.Unavailable}},
		{name: "an answer can be lost although the work is done",
			files: map[string]string{"CreateVolume.1": `{"code":"UNAVAILABLE","done":true}`},
			want:  []codes.Code{codes.Unavailable, codes.OK}, left: 1},
		{name: "a slow call succeeds", files: map[string]string{"CreateVolume.1": `{"delay":"1ms"}`}, want: []codes.Code{codes.OK}, left: 1},
		{name: "an unreadable order fails the call", files: map[string]string{"CreateVolume": `{`}, want: []codes.Code{codes.Internal}},
		{name: "orders for other calls, and unfinished ones, do nothing", files: map[string]string{
			"DeleteVolume": `{"code":"INTERNAL"}`, "CreateVolume.1.new": `{"code":"INTERNAL"}`}, want: []codes.Code{codes.OK}, left: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := options(t)
			connection, _ := serve(t, o)
			for name, content := range test.files {
				require.NoError(t, os.WriteFile(filepath.Join(o.Directory, "faults", name), []byte(content), 0o600))
			}
			client := csi.NewControllerClient(connection)
			for i, want := range test.want {
				_, err := client.CreateVolume(t.Context(), order("pvc-1", gibibyte, "n1"))
				assert.Equal(t, want, status.Code(err), "call %d: %v", i+1, err)
				if i == 0 {
					list, err := client.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
					require.NoError(t, err)
					assert.Len(t, list.Entries, test.left)
				}
			}
			calls, err := os.ReadFile(filepath.Join(o.Directory, "calls"))
			require.NoError(t, err)
			var ended []string
			for line := range strings.Lines(string(calls)) {
				if code, ok := strings.CutPrefix(line, "CreateVolume "); ok {
					ended = append(ended, strings.TrimSpace(code))
				}
			}
			var want []string
			for _, code := range test.want {
				want = append(want, code.String())
			}
			assert.Equal(t, want, ended)
		})
	}
}

func TestParametersThatCanBeChanged(t *testing.T) {
	connection, _ := serve(t, options(t))
	client := csi.NewControllerClient(connection)
	made, err := client.CreateVolume(t.Context(), order("pvc-1", gibibyte, "n1"))
	require.NoError(t, err)
	for _, test := range []struct {
		key, value string
		want       codes.Code
	}{{"iops", "100", codes.OK}, {"iops", "many", codes.InvalidArgument}, {"colour", "1", codes.InvalidArgument}} {
		_, err := client.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{
			VolumeId: made.Volume.VolumeId, MutableParameters: map[string]string{test.key: test.value}})
		assert.Equal(t, test.want, status.Code(err), "%s=%s", test.key, test.value)
	}
}

func TestListsComeInPages(t *testing.T) {
	connection, _ := serve(t, options(t))
	client := csi.NewControllerClient(connection)
	for _, name := range []string{"a", "b", "c"} {
		_, err := client.CreateVolume(t.Context(), order(name, 1, "n1"))
		require.NoError(t, err)
	}
	var seen []string
	for token, more := "", true; more; more = token != "" {
		page, err := client.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		require.NoError(t, err)
		for _, entry := range page.Entries {
			seen = append(seen, entry.Volume.VolumeId)
		}
		token = page.NextToken
	}
	assert.Equal(t, []string{"vol-a", "vol-b", "vol-c"}, seen)
	_, err := client.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "9"})
	assert.Equal(t, codes.Aborted, status.Code(err))
}

func TestTheKubeletIsToldWhereTheDriverServes(t *testing.T) {
	o := options(t)
	o.Registration = filepath.Join(t.TempDir(), "r")
	connection, stop := serve(t, o)
	kubelet, err := grpc.NewClient("unix://"+o.Registration, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer kubelet.Close()
	client := registration.NewRegistrationClient(kubelet)
	info, err := client.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	assert.Equal(t, registration.CSIPlugin, info.Type)
	assert.Equal(t, o.Name, info.Name)
	assert.Equal(t, connection.Target(), "unix://"+info.Endpoint)
	_, err = client.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	stop()
	assert.NoFileExists(t, o.Registration)
}

func TestAVolumeIsAttachedToOneNodeAtATimeUnlessAskedOtherwise(t *testing.T) {
	o := options(t)
	o.Attach, o.TopologyKey = true, ""
	connection, stop := serve(t, o)
	client := csi.NewControllerClient(connection)
	request := order("pvc-1", gibibyte)
	made, err := client.CreateVolume(t.Context(), request)
	require.NoError(t, err)
	publish := func(node string, mode csi.VolumeCapability_AccessMode_Mode) codes.Code {
		capability := request.VolumeCapabilities[0]
		capability.AccessMode.Mode = mode
		_, err := client.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: made.Volume.VolumeId, NodeId: node, VolumeCapability: capability})
		return status.Code(err)
	}
	one, several := csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	assert.Equal(t, codes.OK, publish("n1", one))
	assert.Equal(t, codes.OK, publish("n1", one), "it is there already")
	assert.Equal(t, codes.FailedPrecondition, publish("n2", one))
	assert.Equal(t, codes.OK, publish("n2", several))
	stop()

	connection, _ = serve(t, o)
	client = csi.NewControllerClient(connection)
	for _, node := range []string{"n1", "n2"} {
		_, err = client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: made.Volume.VolumeId})
		assert.Equal(t, codes.FailedPrecondition, status.Code(err), "it is still attached to %s", node)
		for range 2 {
			_, err = client.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{
				VolumeId: made.Volume.VolumeId, NodeId: node})
			require.NoError(t, err)
		}
	}
	_, err = client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: made.Volume.VolumeId})
	require.NoError(t, err)
}

func TestAFileSystemIsRefusedToSeveralNodesAndADeviceIsNot(t *testing.T) {
	connection, _ := serve(t, options(t))
	client := csi.NewControllerClient(connection)
	for mode, want := range map[csi.VolumeCapability_AccessMode_Mode]codes.Code{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: codes.OK,
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    codes.OK,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  codes.InvalidArgument,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   codes.InvalidArgument,
	} {
		r := order("files-"+mode.String(), pool.Mebibyte)
		r.VolumeCapabilities[0].AccessMode.Mode = mode
		_, err := client.CreateVolume(t.Context(), r)
		assert.Equal(t, want, status.Code(err), "file system, %s", mode)
		r.Name, r.Parameters = "shared-"+mode.String(), map[string]string{"share": "true"}
		_, err = client.CreateVolume(t.Context(), r)
		assert.NoError(t, err, "file system of a class that shares, %s", mode)
		r.Name = "device-" + mode.String()
		r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		_, err = client.CreateVolume(t.Context(), r)
		assert.NoError(t, err, "device, %s", mode)
	}
}

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
			request.VolumeContentSource = &csi.VolumeContentSource{
				Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}},
			}
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

// TestTheDriverDoesWhatTheSpecificationSays runs the specification's own suite, with
// real devices and mounts.
func TestTheDriverDoesWhatTheSpecificationSays(t *testing.T) {
	o := newMachine(t).node.options
	o.Attach = true
	o.Pool = 1000 * gibibyte // volumes of no stated size get 10 GiB from the suite, all of them sparse
	connection, _ := serve(t, o)
	config := sanity.NewTestConfig()
	// The suite waits for its connection to change, for ever if it is there already.
	config.Address = "passthrough:///" + strings.TrimPrefix(connection.Target(), "unix://")
	config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, socket string) (net.Conn, error) {
		time.Sleep(200 * time.Millisecond)
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}))
	config.TargetPath = filepath.Join(t.TempDir(), "target")
	config.StagingPath = filepath.Join(t.TempDir(), "staging")
	config.TestVolumeSize = 64 * pool.Mebibyte
	config.TestVolumeExpandSize = 128 * pool.Mebibyte
	sanity.Test(t, config)
}
