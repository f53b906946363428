package testbed

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
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
