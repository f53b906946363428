package driver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		r.AccessibilityRequirements.Preferred = append(r.AccessibilityRequirements.Preferred, &csi.Topology{Segments: map[string]string{"host": node}})
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
	capacity, err := client.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"host": "n1"}}})
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
		{name: "an answer can be lost although the work is done", files: map[string]string{"CreateVolume.1": `{"code":"UNAVAILABLE","done":true}`},
			want: []codes.Code{codes.Unavailable, codes.OK}, left: 1},
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
