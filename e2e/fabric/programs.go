package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	extender "github.com/lodestone-storage/lodestone/extender/app"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// Program is one of Lodestone's programs, running inside this process.
type Program struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(ctx context.Context, run func(context.Context) error) *Program {
	ctx, cancel := context.WithCancel(ctx)
	p := &Program{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = run(ctx)
	}()
	return p
}

// Stop ends the program as SIGTERM would, waits for it and returns its error.
func (p *Program) Stop() error {
	p.cancel()
	return p.Wait()
}

// Wait waits for the program to end and returns its error.
func (p *Program) Wait() error {
	<-p.done
	return p.err
}

// StartProvisioner starts a provisioner with the rights of its ServiceAccount.
// tune changes its flags, and its client, before the start.
func (f *Fabric) StartProvisioner(ctx context.Context, tune ...func(*provisioner.Config)) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, "lodestone-provisioner")
	if err != nil {
		return nil, err
	}
	options := provisioner.NewOptions()
	options.HTTPAddress = ""
	options.LeaseDuration = 15 * time.Second
	options.ProbeInterval = time.Second
	options.RefusalPeriod = 5 * time.Second
	options.ForcedDeletionMargin, options.MoveSettling = time.Second, 2*time.Second
	options.MoverNetworks = []string{processes.Network}
	options.LabelMovingNamespaces = f.Webhook != nil
	config := &provisioner.Config{Options: *options, Home: home}
	for _, t := range tune {
		t(config)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, func(ctx context.Context) error { return provisioner.Run(ctx, config) }), nil
}

// StartExtender starts the extender where kube-scheduler looks for it, with the
// rights of its ServiceAccount, and waits until it is ready.
func (f *Fabric) StartExtender(ctx context.Context) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, "lodestone-extender")
	if err != nil {
		return nil, err
	}
	verbs, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.extender)
	if err != nil {
		return nil, fmt.Errorf("listen for the scheduler: %w", err)
	}
	return startExtender(ctx, home, verbs)
}

func startExtender(ctx context.Context, home *rest.Config, verbs net.Listener) (*Program, error) {
	status, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, verbs.Close())
	}
	p := start(ctx, func(ctx context.Context) error {
		return extender.Run(ctx, &extender.Config{Home: home, Verbs: verbs, Status: status, ShutdownGrace: 10 * time.Millisecond})
	})
	return p, awaitHTTP(ctx, "http://"+status.Addr().String()+"/readyz")
}

// BuildProvisioner builds the provisioner for RunProvisioner and returns its
// path. The file goes with the clusters.
func (f *Fabric) BuildProvisioner(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "lodestone-provisioner")
	return path, build(ctx, path, "provisioner")
}

// BuildAgent builds the remote agent for RunAgent and returns its path. The file goes
// with the clusters.
func (f *Fabric) BuildAgent(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "lodestone-remote-agent")
	return path, build(ctx, path, "remoteagent")
}

// BuildPlugin builds kubectl-lodestone and returns its path. The file goes with the
// clusters.
func (f *Fabric) BuildPlugin(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "kubectl-lodestone")
	return path, build(ctx, path, "kubectl-lodestone")
}

// BuildMover builds the mover for Options.Programs, where its image is called
// lodestone-mover, and returns its path. The file goes with ctx.
func BuildMover(ctx context.Context) (string, error) {
	folder, err := os.MkdirTemp("", "lodestone-mover-")
	if err != nil {
		return "", fmt.Errorf("make folder of the mover: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "lodestone-mover")
	return path, build(ctx, path, "mover")
}

func build(ctx context.Context, path, program string) error {
	command := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, "./"+program) // linked in half the time
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the %s: %w\n%s", program, err, output)
	}
	return nil
}

// readyTimeout bounds the start of a program.
const readyTimeout = 30 * time.Second

// provisionerAccount is the provisioner's ServiceAccount, as deploy/base makes it.
const provisionerAccount = "lodestone-provisioner"

// RunProvisioner runs the provisioner built at path as a process, under a name of
// its own, with the rights of its ServiceAccount and leader election, and waits
// until it is ready. A replica that does not lead is ready too. Flags go before
// those that suit a test bed.
func (f *Fabric) RunProvisioner(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	own := []string{"--leader-elect=true", "--lease-duration=8s", "--probe-interval=1s", "--refusal-period=5s", "--forced-deletion-margin=1s",
		"--move-settling=2s", "--v=2"}
	if f.Webhook != nil {
		own = append(own, "--label-moving-namespaces=true")
	}
	return run(ctx, f.Home, name, path, System, provisionerAccount, append(own, flags...)...)
}

// ProvisionerKubeconfig returns a kubeconfig of home with the rights of the
// provisioner's ServiceAccount.
func (f *Fabric) ProvisionerKubeconfig(ctx context.Context) ([]byte, error) {
	return f.Home.ServiceAccountKubeconfig(ctx, System, provisionerAccount)
}

// AgentKubeconfig returns a kubeconfig of west with the rights of the remote agent's
// ServiceAccount.
func (f *Fabric) AgentKubeconfig(ctx context.Context) ([]byte, error) {
	return f.West.ServiceAccountKubeconfig(ctx, agentNamespace, agentAccount)
}

// RunExtender runs the extender built at path as a process where kube-scheduler
// looks for it, with the rights of its ServiceAccount, and waits until it is ready.
func (f *Fabric) RunExtender(ctx context.Context, name, path string) (*testbed.Program, error) {
	return run(ctx, f.Home, name, path, System, "lodestone-extender", "--listen="+f.extender, "--shutdown-grace=100ms")
}

// RunAgent runs the remote agent built at path as a process in west, under a name
// of its own, with the rights of its ServiceAccount and leader election, and
// waits until it is ready. A replica that does not lead is ready too.
func (f *Fabric) RunAgent(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	return run(ctx, f.West, name, path, agentNamespace, agentAccount, append([]string{
		"--leader-elect=true", "--lease-duration=8s", "--settle-time=1s", "--v=2"}, flags...)...)
}

func run(ctx context.Context, cluster *testbed.Cluster, name, path, namespace, account string, flags ...string) (*testbed.Program, error) {
	content, err := cluster.ServiceAccountKubeconfig(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cluster.WriteFile(name+".kubeconfig", content)
	if err != nil {
		return nil, err
	}
	status, err := cluster.ReserveAddress()
	if err != nil {
		return nil, fmt.Errorf("find an address for %s: %w", name, err)
	}
	flags = append(flags, "--kubeconfig="+kubeconfig, "--http-address="+status)
	program, err := cluster.StartProgram(name, path, flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	return program, program.AwaitHTTP(ctx, "http://"+status+"/readyz")
}

// Leads reports whether a provisioner that RunProvisioner started has become the
// leader, which it says in its log.
func Leads(provisioner *testbed.Program) (bool, error) {
	output, err := provisioner.Output()
	return strings.Contains(output, `"Leading"`), err
}

// MakeLocalVolume makes, all of one name, a node of a cluster that nobody plays and
// no pod goes to, a volume on its disk, and a real class of such volumes, which
// binds at once. Remove takes all away.
func MakeLocalVolume(ctx context.Context, cluster *testbed.Cluster, name string) (remove func(), err error) {
	client := cluster.Client()
	remove = func() {
		ctx := context.WithoutCancel(ctx)
		_ = client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.StorageV1().StorageClasses().Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err := MakeEmptyNode(ctx, cluster, name); err != nil {
		return remove, err
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}, metav1.CreateOptions{}); err != nil {
		return remove, fmt.Errorf("make class %s: %w", name, err)
	}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
					Values: []string{name}}},
			}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return remove, fmt.Errorf("make volume %s: %w", name, err)
	}
	return remove, nil
}

// MakeEmptyNode makes a node that nobody plays and no pod goes to.
func MakeEmptyNode(ctx context.Context, cluster *testbed.Cluster, name string) error {
	_, err := cluster.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make node %s: %w", name, err)
	}
	return nil
}
