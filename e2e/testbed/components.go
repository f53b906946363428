package testbed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
