// Package testbed runs real Kubernetes control planes as processes on loopback
// and gives tests and the demo what they need to work with them.
//
// A cluster is etcd, kube-apiserver, kube-controller-manager and kube-scheduler,
// all from one multi-call program that is built once from Go modules and cached
// outside the source tree (see [Binary]). There is no kubelet: nodes and pods are
// played by package fakekubelet, the real storage class by package fakeprovisioner.
//
// Nothing outlives the process that started it: clusters stop with [Cluster.Stop],
// with the context given to [Start], and, because the kernel sends their
// processes a signal, also when that process is killed. Logs are removed with
// the clusters, unless something failed; then a line on standard error says
// where they are.
//
// Tests that need clusters share one set for each package:
//
//	func TestMain(m *testing.M) {
//		testbed.Main(m, func(ctx context.Context) (err error) {
//			clusters, err = testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
//			return err
//		})
//	}
//
//	func TestSomething(t *testing.T) {
//		namespace := testbed.Namespace(t, clusters...) // skips unless LODESTONE_TESTBED=1
//	}
package testbed

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/built"
)

// Cluster is a running control plane. Its methods may be called concurrently.
type Cluster struct {
	cfg      Config
	binary   string
	dir      *directory
	ports    clusterPorts
	ca       []byte
	admin    identity
	client   kubernetes.Interface
	keepLogs atomic.Bool
	stopOnce sync.Once

	mu        sync.Mutex // guards what follows
	stopped   bool
	processes map[string]*process
	reserved  []port // beside those of the control plane
}

type clusterPorts struct {
	etcd, etcdPeer, apiServer, controllerManager, scheduler port
}

// newCluster prepares the files of a cluster, and starts nothing.
func newCluster(cfg Config, binary string) (*Cluster, error) {
	dir, err := newDirectory(cfg.Name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, binary: binary, dir: dir, processes: map[string]*process{}}
	if err := c.prepare(); err != nil {
		dir.remove()
		return nil, fmt.Errorf("prepare cluster %s: %w", cfg.Name, err)
	}
	return c, nil
}

func (c *Cluster) prepare() (err error) {
	if c.ca, err = writeKeys(c.dir, c.Name()); err != nil {
		return err
	}
	ports, err := reservePorts(5)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			releasePorts(ports)
		}
	}()
	c.ports = clusterPorts{etcd: ports[0], etcdPeer: ports[1], apiServer: ports[2], controllerManager: ports[3], scheduler: ports[4]}
	if err := c.writeAccess(); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.AdminConfig()); err != nil {
		return fmt.Errorf("make the administrator's client: %w", err)
	}
	return c.writeSchedulerConfig()
}

// writeAccess writes the tokens, the kubeconfigs and the kubectl command.
func (c *Cluster) writeAccess() error {
	c.admin = newIdentity("admin", "system:masters")
	identities := map[string]identity{
		"admin":           c.admin,
		controllerManager: newIdentity("system:kube-controller-manager", ""),
		scheduler:         newIdentity("system:kube-scheduler", ""),
	}
	if err := c.dir.write(tokensFile, tokenFile(identities["admin"], identities[controllerManager], identities[scheduler])); err != nil {
		return err
	}
	for name, id := range identities {
		content, err := c.kubeconfig(id.user, id.token)
		if err != nil {
			return err
		}
		if err := c.dir.write(name+".kubeconfig", content); err != nil {
			return err
		}
	}
	return c.writeKubectl()
}

// Name returns the name given in the cluster's Config.
func (c *Cluster) Name() string { return c.cfg.Name }

// Kubeconfig returns the path of a kubeconfig with all rights.
func (c *Cluster) Kubeconfig() string { return c.dir.file("admin.kubeconfig") }

// LogDirectory returns where the logs of the cluster's programs are.
func (c *Cluster) LogDirectory() string { return c.dir.file("logs") }

// KeepLogs makes Stop keep the logs and say where they are.
func (c *Cluster) KeepLogs() { c.keepLogs.Store(true) }

func (c *Cluster) server() string { return "https://" + c.ports.apiServer.address() }

// Stop ends all programs of the cluster, waits for their end and removes its files.
// Stopping twice is allowed.
func (c *Cluster) Stop() {
	c.stopOnce.Do(c.stop)
}

func (c *Cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	var ended sync.WaitGroup
	for _, p := range c.processes {
		ended.Go(func() { p.stop(0) })
	}
	ended.Wait()
	clear(c.processes)
	releasePorts(c.reserved)
	releasePorts([]port{c.ports.etcd, c.ports.etcdPeer, c.ports.apiServer, c.ports.controllerManager, c.ports.scheduler})
	if c.keepLogs.Load() {
		fmt.Fprintf(os.Stderr, "testbed: the logs of cluster %s are in %s\n", c.Name(), c.dir.removeAllButLogs())
		return
	}
	c.dir.remove()
}

// startTimeout bounds the start of all clusters once their program is built.
const startTimeout = 3 * time.Minute

// running holds the clusters of this process, for Main.
var running struct {
	sync.Mutex
	clusters []*Cluster
}

// Start starts a cluster for each configuration, in parallel, and returns them in
// that order when pods can be created in all. If one fails, all are stopped. They
// are stopped too when ctx ends; Stop waits for it.
func Start(ctx context.Context, configs ...Config) ([]*Cluster, error) {
	if err := validateAll(configs); err != nil {
		return nil, err
	}
	binaries := make([]string, len(configs))
	for i, config := range configs {
		var err error
		if binaries[i], err = binaryOf(ctx, os.Stderr, config.Name); err != nil {
			return nil, fmt.Errorf("find the control plane program: %w", err)
		}
	}
	sweepDirectories()
	startCtx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	group, startCtx := errgroup.WithContext(startCtx)
	clusters := make([]*Cluster, len(configs))
	for i, config := range configs {
		group.Go(func() (err error) {
			if clusters[i], err = newCluster(config, binaries[i]); err != nil {
				return err
			}
			return clusters[i].start(startCtx)
		})
	}
	if err := group.Wait(); err != nil {
		stopAll(clusters)
		return nil, err
	}
	for _, c := range clusters {
		context.AfterFunc(ctx, c.Stop)
	}
	running.Lock()
	defer running.Unlock()
	running.clusters = append(running.clusters, clusters...)
	return clusters, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.launchAPIServer(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.StartScheduler(ctx) })
	group.Go(func() error { return c.launch(ctx, controllerManager, c.controllerManagerArgs(), c.defaultsReady) })
	return group.Wait()
}

// stopAll stops clusters in parallel; some may be nil.
func stopAll(clusters []*Cluster) {
	var stopped sync.WaitGroup
	for _, c := range clusters {
		if c != nil {
			stopped.Go(c.Stop)
		}
	}
	stopped.Wait()
}

// Config says what one cluster is like. The zero value of each field but Name is usable.
type Config struct {
	// Name names the cluster in logs, directories and kubeconfig contexts; a DNS label.
	Name string

	// Extenders are URL prefixes that kube-scheduler calls for filter, prioritize and
	// preempt, with node names only, ignorable, without TLS. They are added to those of SchedulerConfig.
	Extenders []string

	// SchedulerConfig is the path of a KubeSchedulerConfiguration to run with. Its client
	// connection and leader election are replaced by those that this cluster needs.
	SchedulerConfig string

	// ControllerManagerQPS and ControllerManagerBurst bound the API requests of each controller.
	// Zero keeps the defaults of kube-controller-manager, 20 and 30.
	ControllerManagerQPS   float32
	ControllerManagerBurst int

	// FeatureGates are set in all programs of the control plane.
	FeatureGates map[string]bool

	// NodeGracePeriod is how long a node may be silent before it is NotReady; zero means 8 s.
	// Simulated nodes must renew their leases several times within it.
	NodeGracePeriod time.Duration

	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are appended to the command lines.
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string
}

func (c Config) validate() error {
	if problems := validation.IsDNS1123Label(c.Name); len(problems) > 0 {
		return fmt.Errorf("cluster name %q: %s", c.Name, strings.Join(problems, "; "))
	}
	if c.ControllerManagerQPS < 0 || c.ControllerManagerBurst < 0 {
		return fmt.Errorf("cluster %s: client rates of the controller manager must not be negative", c.Name)
	}
	if c.NodeGracePeriod < 0 {
		return fmt.Errorf("cluster %s: the grace period of nodes must not be negative", c.Name)
	}
	return nil
}

func (c Config) nodeGracePeriod() time.Duration {
	if c.NodeGracePeriod == 0 {
		return 8 * time.Second
	}
	return c.NodeGracePeriod
}

func validateAll(configs []Config) error {
	if len(configs) == 0 {
		return fmt.Errorf("no cluster to start: give at least one Config")
	}
	seen := map[string]bool{}
	for _, config := range configs {
		if err := config.validate(); err != nil {
			return err
		}
		if seen[config.Name] {
			return fmt.Errorf("two clusters are named %s", config.Name)
		}
		seen[config.Name] = true
	}
	return nil
}

// Minor returns the minor version of the cluster's Kubernetes.
func (c *Cluster) Minor(t testing.TB) int {
	t.Helper()
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("ask the API server of %s for its version: %v", c.Name(), err)
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		t.Fatalf("the API server of %s has version %s.%s", c.Name(), version.Major, version.Minor)
	}
	return minor
}

// ServesPolicies says whether the cluster's API server serves MutatingAdmissionPolicies, as Kubernetes does from 1.36 on.
func (c *Cluster) ServesPolicies() (bool, error) {
	resources, err := c.Client().Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		return false, fmt.Errorf("ask what the API server of %s serves: %w", c.Name(), err)
	}
	return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }), nil
}

// Kustomization returns the path of what users of this cluster's Kubernetes apply for a folder of deploy/: the folder, or where no
// policies are served, the folder with the component behind it that makes webhooks of them.
func (c *Cluster) Kustomization(folder string) (string, error) {
	root, err := built.SourceTree()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(root, "deploy", folder)
	served, err := c.ServesPolicies()
	if served || err != nil {
		return folder, err
	}
	behind, err := os.MkdirTemp(c.dir.file(""), "webhooks-")
	if err != nil {
		return "", fmt.Errorf("make a folder for a kustomization: %w", err)
	}
	// kustomize takes no absolute paths.
	relative, err := filepath.Rel(behind, folder)
	if err != nil {
		return "", fmt.Errorf("say where %s is from %s: %w", folder, behind, err)
	}
	component, err := filepath.Rel(behind, filepath.Join(root, "deploy", "components", "webhook"))
	if err != nil {
		return "", fmt.Errorf("say where the webhook's component is from %s: %w", behind, err)
	}
	content := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents: [%s]\n",
		relative, component)
	if err := os.WriteFile(filepath.Join(behind, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		return "", fmt.Errorf("write a kustomization: %w", err)
	}
	return behind, nil
}

// Binary returns the path of the program that is etcd, the control plane and kubectl
// in one of all clusters that are not remote: see binaryOf.
func Binary(ctx context.Context, out io.Writer) (string, error) { return binaryOf(ctx, out, "home") }

// binaryOf returns the path of the program of a cluster: $LODESTONE_CONTROLPLANE if that is set, otherwise that of
// built.Chosen, which takes several minutes to build once, and reports progress to out. A cluster is remote if
// it is called as tests call their remote clusters, west or east.
func binaryOf(ctx context.Context, out io.Writer, cluster string) (string, error) {
	if path := os.Getenv("LODESTONE_CONTROLPLANE"); path != "" {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return "", fmt.Errorf("LODESTONE_CONTROLPLANE names %s, which is not a program: unset it or correct it", path)
		}
		return path, nil
	}
	set, err := built.Chosen(built.ControlPlane, cluster == "west" || cluster == "east")
	if err != nil {
		return "", err
	}
	directory, err := set.Build(ctx, out)
	if err != nil {
		return "", fmt.Errorf("%w; or set LODESTONE_CONTROLPLANE", err)
	}
	return filepath.Join(directory, "controlplane"), nil
}
