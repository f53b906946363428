// Package driver is a CSI driver for tests. It has what simple drivers lack that a
// claim can ask for: file systems and raw block, a bounded pool for each node,
// attachments, clones, snapshots also of several volumes at one moment, expansion while in use, ReadWriteOncePod, parameters that can be
// changed, and failures that a test can order; see [faults].
//
// Volumes are files; what there is survives a restart, see package pool. On a node
// they are attached as loop devices, which needs root, losetup, mkfs.ext4 and
// resize2fs; ext4 grows while it is mounted only for those with CAP_SYS_RESOURCE, xfs,
// which needs mkfs.xfs and xfs_growfs, for root.
// Without a node name the driver has no node service, needs no rights,
// and nothing is mounted: that is for control planes whose kubelets are played.
package driver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/lodestone-storage/lodestone/e2e/disk/pool"
)

// Options are the flags of the driver.
type Options struct {
	// Name is the driver's name.
	Name string
	// Directory holds the volumes, and the failures that are ordered.
	Directory string
	// Socket is where the sidecars and the kubelet call; both must know it by the
	// same path.
	Socket string
	// Registration is the path of a socket in the kubelet's directory plugins_registry;
	// empty: no kubelet is told of the driver.
	Registration string
	// Pool is the bytes that the volumes and snapshots of one node may have together.
	Pool int64
	// Least is the bytes that a volume has at least: a smaller order is rounded up, as clouds do.
	Least int64
	// TopologyKey is the node label by which nodes are told apart; empty: a volume
	// can be reached from everywhere, and there is one pool.
	TopologyKey string
	// Node is the value of that label on this node; empty: there is no node service.
	Node string
	// Attach has volumes attached to nodes by the controller service, as disks of clouds are:
	// the CSIDriver object must say so, and external-attacher must run.
	Attach bool
	// NoGroups has the driver take no snapshots of several volumes at one moment, as many cannot.
	NoGroups bool
	// Folders is what package pool says.
	Folders string
}

// Main runs the driver until it is asked to end, and returns its exit code.
func Main(args []string) int {
	var o Options
	flags := flag.NewFlagSet("disk", flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", "disk.test", "name of the driver")
	flags.StringVar(&o.Directory, "directory", "", "directory of the volumes")
	flags.StringVar(&o.Socket, "socket", "", "path of the socket to serve on")
	flags.StringVar(&o.Registration, "registration", "", "path of a socket in the kubelet's plugins_registry; empty: the kubelet is not told")
	flags.Int64Var(&o.Pool, "pool", 100<<30, "bytes that the volumes of one node may have together")
	flags.Int64Var(&o.Least, "least", 0, "bytes that a volume has at least: a smaller order is rounded up, as clouds do")
	flags.StringVar(&o.TopologyKey, "topology-key", "kubernetes.io/hostname",
		"node label that says where a volume is; empty: volumes can be reached from everywhere")
	flags.StringVar(&o.Node, "node", "", "name of this node; empty: no node service")
	flags.BoolVar(&o.Attach, "attach", false, "volumes must be attached to a node before that uses them")
	flags.BoolVar(&o.NoGroups, "no-groups", false, "take no snapshots of several volumes at one moment")
	flags.StringVar(&o.Folders, "folders", "", "directory with a folder for each volume, which is copied with it; empty: there are none")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		return 1
	}
	return 0
}

// Run serves until ctx ends. Calls under way are ended with it.
func Run(ctx context.Context, o Options) error {
	if o.Directory == "" || o.Socket == "" {
		return errors.New("give --directory and --socket")
	}
	var toDisk func()
	if o.Node != "" {
		toDisk = flush
	}
	volumes, err := pool.Open(o.Directory, o.Pool, toDisk)
	if err != nil {
		return fmt.Errorf("open the pool: %w", err)
	}
	volumes.Folders = o.Folders
	orders := faults{directory: filepath.Join(o.Directory, "faults")}
	if err := os.MkdirAll(orders.directory, 0o700); err != nil {
		return fmt.Errorf("make the directory of failures: %w", err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(orders.intercept))
	csi.RegisterIdentityServer(server, &identity{options: o})
	csi.RegisterControllerServer(server, &controller{options: o, pool: volumes})
	csi.RegisterGroupControllerServer(server, &groupController{pool: volumes, none: o.NoGroups})
	if o.Node != "" {
		csi.RegisterNodeServer(server, &node{options: o, pool: volumes})
	}
	// If one ends, so does the other.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- serveOn(ctx, o.Socket, server) }()
	waiting := 1
	if o.Registration != "" {
		told := grpc.NewServer()
		registration.RegisterRegistrationServer(told, &registrar{options: o})
		go func() { ended <- serveOn(ctx, o.Registration, told) }()
		waiting++
	}
	for range waiting {
		err = errors.Join(err, <-ended)
		cancel()
	}
	return err
}

// serveOn serves on a socket until ctx ends.
func serveOn(ctx context.Context, socket string, server *grpc.Server) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of a driver that has ended: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve on %s: %w", socket, err)
	}
	return nil
}

// registrar tells the kubelet of the driver, which finds its socket in the directory
// plugins_registry. It takes the place of node-driver-registrar.
type registrar struct {
	registration.UnimplementedRegistrationServer
	options Options
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.options.Name, Endpoint: r.options.Socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus says in the log what the kubelet thinks of the driver.
func (r *registrar) NotifyRegistrationStatus(_ context.Context,
	status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if status.PluginRegistered {
		fmt.Fprintln(os.Stderr, "disk: the kubelet has registered the driver")
	} else {
		fmt.Fprintln(os.Stderr, "disk: the kubelet refuses the driver:", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

type identity struct {
	csi.UnimplementedIdentityServer
	options Options
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.options.Name, VendorVersion: "v0"}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if !i.options.NoGroups {
		services = append(services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	if i.options.TopologyKey != "" {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	response := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
		},
	}}}
	for _, service := range services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
