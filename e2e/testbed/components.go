package testbed

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// stopGrace is how long a program may take to end when it is stopped alone.
const stopGrace = 3 * time.Second

// StopAPIServer ends the API server: connections to it are refused. What it has
// stored stays.
func (c *Cluster) StopAPIServer(context.Context) error { return c.halt(apiServer) }

// StartAPIServer starts the API server again, at the same address, and waits until
// it is ready. The controller manager and the scheduler are restarted if they run:
// after an outage they would look for the API server again only once a minute.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.launchAPIServer(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if c.runs(scheduler) {
		group.Go(func() error { return errors.Join(c.StopScheduler(ctx), c.StartScheduler(ctx)) })
	}
	if c.runs(controllerManager) {
		group.Go(func() error { return errors.Join(c.StopControllerManager(ctx), c.StartControllerManager(ctx)) })
	}
	return group.Wait()
}

func (c *Cluster) launchAPIServer(ctx context.Context) error {
	return c.launch(ctx, apiServer, c.apiServerArgs(), c.apiServerReady)
}

// PauseAPIServer freezes the API server: connections to it are accepted and hang.
func (c *Cluster) PauseAPIServer() error { return c.pause(apiServer) }

// ResumeAPIServer undoes PauseAPIServer.
func (c *Cluster) ResumeAPIServer() error { return c.signal(apiServer, syscall.SIGCONT) }

// StopScheduler ends kube-scheduler.
func (c *Cluster) StopScheduler(context.Context) error { return c.halt(scheduler) }

// StartScheduler starts kube-scheduler again and waits until it is healthy.
func (c *Cluster) StartScheduler(ctx context.Context) error {
	return c.launch(ctx, scheduler, c.schedulerArgs(), healthy("https://"+c.ports.scheduler.address()+"/healthz"))
}

// StopControllerManager ends kube-controller-manager.
func (c *Cluster) StopControllerManager(context.Context) error { return c.halt(controllerManager) }

// StartControllerManager starts kube-controller-manager again and waits until it is healthy.
func (c *Cluster) StartControllerManager(ctx context.Context) error {
	return c.launch(ctx, controllerManager, c.controllerManagerArgs(), healthy("https://"+c.ports.controllerManager.address()+"/healthz"))
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.launch(ctx, etcd, c.etcdArgs(), healthy("http://"+c.ports.etcd.address()+"/health"))
}

// launch starts a program and waits until it is ready. One that runs already is left alone.
func (c *Cluster) launch(ctx context.Context, program string, args []string, ready func(context.Context) error) error {
	p, err := c.register(program, args)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name(), err)
	}
	if err := p.waitUntil(ctx, ready); err != nil {
		c.KeepLogs()
		return fmt.Errorf("cluster %s: %w", c.Name(), err)
	}
	return nil
}

func (c *Cluster) register(program string, args []string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("%s cannot start: the cluster is stopped", program)
	}
	if p := c.processes[program]; p != nil {
		return p, nil
	}
	p, err := startProcess(c.binary, program, args, c.dir.file("logs", program+".log"), c.died)
	if err != nil {
		return nil, err
	}
	c.processes[program] = p
	return p, nil
}

// died reports a program that ended although nobody stopped it.
func (c *Cluster) died(p *process) {
	c.KeepLogs()
	fmt.Fprintf(os.Stderr, "testbed: %s of cluster %s ended unexpectedly; its log is %s\n", p.program, c.Name(), p.logPath)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.processes[p.program] == p {
		delete(c.processes, p.program)
	}
}

func (c *Cluster) halt(program string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[program]
	if p == nil {
		return fmt.Errorf("cluster %s: %s is not running", c.Name(), program)
	}
	p.stop(stopGrace)
	delete(c.processes, program)
	return nil
}

func (c *Cluster) runs(program string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[program] != nil
}

func (c *Cluster) signal(program string, s syscall.Signal) error {
	p, err := c.find(program)
	if err != nil {
		return err
	}
	return p.signal(s)
}

func (c *Cluster) find(program string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[program]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("cluster %s: %s is not running", c.Name(), program)
}

// pause returns when the program does nothing any more.
func (c *Cluster) pause(program string) error {
	p, err := c.find(program)
	if err != nil {
		return err
	}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitPaused(10 * time.Second)
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// defaultsReady checks that pods can be created: the controller manager has made
// the default service account.
func (c *Cluster) defaultsReady(ctx context.Context) error {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the default service account is not there yet")
	}
	return err
}

// probe does not check certificates: the programs make their own, on loopback.
var probe = &http.Client{
	Timeout:   2 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

func healthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := probe.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}

const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

func (c *Cluster) etcdArgs() []string {
	client, peer := "http://"+c.ports.etcd.address(), "http://"+c.ports.etcdPeer.address()
	return []string{
		"--name=" + c.Name(),
		"--data-dir=" + c.dir.file("etcd"),
		"--unsafe-no-fsync", // the data is thrown away, so it need not survive a power cut
		"--log-level=warn",
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name() + "=" + peer,
	}
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=http://" + c.ports.etcd.address(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + c.ports.apiServer.String(),
		"--endpoint-reconciler-type=none", // it refuses loopback addresses
		"--service-cluster-ip-range=10.96.0.0/16",
		"--cert-dir=" + c.dir.file("apiserver"),
		"--tls-cert-file=" + c.dir.file(servingCertificateFile),
		"--tls-private-key-file=" + c.dir.file(servingKeyFile),
		"--client-ca-file=" + c.dir.file(caCertificateFile),
		"--kubelet-client-certificate=" + c.dir.file(kubeletCertificateFile),
		"--kubelet-client-key=" + c.dir.file(kubeletKeyFile),
		"--token-auth-file=" + c.dir.file(tokensFile),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.dir.file(accountKeyFile),
		"--service-account-signing-key-file=" + c.dir.file(accountKeyFile),
		"--profiling=false",
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.APIServerArgs)
}

func (c *Cluster) controllerManagerArgs() []string {
	kubeconfig := c.dir.file(controllerManager + ".kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.ports.controllerManager.String(),
		"--cert-dir=",
		"--leader-elect=false",
		"--controllers=*",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.dir.file(accountKeyFile),
		"--root-ca-file=" + c.dir.file(caCertificateFile),
		"--cluster-signing-cert-file=" + c.dir.file(caCertificateFile),
		"--cluster-signing-key-file=" + c.dir.file(caKeyFile),
		"--allocate-node-cidrs=false",
		"--flex-volume-plugin-dir=" + c.dir.file("flex"),
		"--node-monitor-period=1s",
		"--node-monitor-grace-period=" + c.cfg.nodeGracePeriod().String(),
		"--profiling=false",
	}
	if c.cfg.ControllerManagerQPS > 0 {
		args = append(args, fmt.Sprintf("--kube-api-qps=%g", c.cfg.ControllerManagerQPS))
	}
	if c.cfg.ControllerManagerBurst > 0 {
		args = append(args, "--kube-api-burst="+strconv.Itoa(c.cfg.ControllerManagerBurst))
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.ControllerManagerArgs)
}

func (c *Cluster) schedulerArgs() []string {
	kubeconfig := c.dir.file(scheduler + ".kubeconfig")
	args := []string{
		"--config=" + c.dir.file(schedulerConfigFile),
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.ports.scheduler.String(),
	}
	return slices.Concat(args, c.featureGateArgs(), c.cfg.SchedulerArgs)
}

func (c *Cluster) featureGateArgs() []string {
	if len(c.cfg.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.cfg.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.cfg.FeatureGates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

// Backup copies all that the cluster has stored and returns the folder of the copy,
// which goes with the cluster. The API server is away meanwhile.
func (c *Cluster) Backup(ctx context.Context) (folder string, err error) {
	if folder, err = os.MkdirTemp(c.dir.path, "backup-"); err != nil {
		return "", fmt.Errorf("make the folder of a backup: %w", err)
	}
	err = c.withoutStore(ctx, func() error { return os.CopyFS(folder, os.DirFS(c.dir.file("etcd"))) })
	return folder, err
}

// Restore puts back what Backup copied: what was stored since then never was. The API
// server is away meanwhile, and what runs beside it reads all anew; who else watches
// it is on their own.
func (c *Cluster) Restore(ctx context.Context, folder string) error {
	return c.withoutStore(ctx, func() error {
		if err := os.RemoveAll(c.dir.file("etcd")); err != nil {
			return err
		}
		return os.CopyFS(c.dir.file("etcd"), os.DirFS(folder))
	})
}

// Forget has etcd forget all history and the API server too, which is away meanwhile:
// who watched it from an earlier version is told that this is gone.
func (c *Cluster) Forget(ctx context.Context) error {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.askEtcd(ctx, "range", `{"key":"AA=="}`, &now); err != nil {
		return err
	}
	if err := c.askEtcd(ctx, "compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now.Header.Revision), &now); err != nil {
		return err
	}
	return errors.Join(c.halt(apiServer), c.StartAPIServer(ctx))
}

// withoutStore does something while etcd and the API server are stopped.
func (c *Cluster) withoutStore(ctx context.Context, do func() error) error {
	if err := errors.Join(c.halt(apiServer), c.halt(etcd)); err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("copy the data of cluster %s: %w", c.Name(), err)
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

func (c *Cluster) askEtcd(ctx context.Context, what, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.ports.etcd.address()+"/v3/kv/"+what, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd of cluster %s: %w", c.Name(), err)
	}
	response, err := probe.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd of cluster %s: %w", c.Name(), err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd of cluster %s answers %s to %s", c.Name(), response.Status, what)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of etcd of cluster %s: %w", c.Name(), err)
	}
	return nil
}

const schedulerConfigFile = "scheduler.yaml"

// schedulerConfig returns the KubeSchedulerConfiguration of a cluster: the template,
// if there is one, connected to this cluster and with the extenders added.
func schedulerConfig(template []byte, kubeconfig string, extenders []string) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(template, &config); err != nil {
		return nil, fmt.Errorf("read the scheduler configuration: %w", err)
	}
	if len(config) == 0 {
		config["apiVersion"] = "kubescheduler.config.k8s.io/v1"
		config["kind"] = "KubeSchedulerConfiguration"
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = kubeconfig
	config["clientConnection"] = connection
	config["leaderElection"] = map[string]any{"leaderElect": false}
	all, _ := config["extenders"].([]any)
	for _, url := range extenders {
		all = append(all, map[string]any{
			"urlPrefix":        url,
			"filterVerb":       "filter",
			"prioritizeVerb":   "prioritize",
			"preemptVerb":      "preempt",
			"weight":           3,
			"nodeCacheCapable": true,
			"ignorable":        true,
			"enableHTTPS":      false,
			"httpTimeout":      "5s",
		})
	}
	if len(all) > 0 {
		config["extenders"] = all
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the scheduler configuration: %w", err)
	}
	return content, nil
}

func (c *Cluster) writeSchedulerConfig() error {
	var template []byte
	if c.cfg.SchedulerConfig != "" {
		var err error
		if template, err = os.ReadFile(c.cfg.SchedulerConfig); err != nil {
			return fmt.Errorf("read the scheduler configuration: %w", err)
		}
	}
	content, err := schedulerConfig(template, c.dir.file(scheduler+".kubeconfig"), c.cfg.Extenders)
	if err != nil {
		return err
	}
	return c.dir.write(schedulerConfigFile, content)
}

// ReconfigureScheduler starts kube-scheduler again with another configuration, a
// KubeSchedulerConfiguration whose client connection and leader election are replaced
// by those that this cluster needs, and waits until it is healthy. Empty means the
// scheduler's defaults. It counts from then on, whatever Config said.
func (c *Cluster) ReconfigureScheduler(ctx context.Context, configuration []byte) error {
	content, err := schedulerConfig(configuration, c.dir.file(scheduler+".kubeconfig"), nil)
	if err != nil {
		return err
	}
	if err := c.dir.write(schedulerConfigFile, content); err != nil {
		return err
	}
	if c.runs(scheduler) {
		if err := c.StopScheduler(ctx); err != nil {
			return err
		}
	}
	return c.StartScheduler(ctx)
}

// PauseScheduler freezes kube-scheduler: what happens meanwhile waits for it.
func (c *Cluster) PauseScheduler() error { return c.pause(scheduler) }

// ResumeScheduler undoes PauseScheduler.
func (c *Cluster) ResumeScheduler() error { return c.signal(scheduler, syscall.SIGCONT) }

// awaitPaused waits until no thread of a process that was told to pause runs any
// more: the kernel stops each when it next looks at it, and until then one may go on
// answering. Where threads cannot be looked at, it does not wait.
func (p *process) awaitPaused(most time.Duration) error {
	threads := "/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/task/*/stat"
	for deadline := time.Now().Add(most); ; {
		files, err := filepath.Glob(threads)
		if err != nil {
			return fmt.Errorf("find the threads of %s: %w", p.program, err)
		}
		running := ""
		for _, file := range files {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			// The name before the state is in parentheses, and may hold some.
			if state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:]); len(state) > 0 && state[0] != 'T' {
				running = file
			}
		}
		if running == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pause %s: after %s %s does not say that the thread is stopped", p.program, most, running)
		}
		time.Sleep(time.Millisecond)
	}
}
