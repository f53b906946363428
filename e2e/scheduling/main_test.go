// Package scheduling_test tries the extender with real kube-schedulers. The test
// stands in for the provisioner: it writes what that program would, and looks at
// the node that kube-scheduler selects for a claim.
package scheduling_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
)

const (
	system = "lodestone-system"
	class  = "lodestone"

	long  = 60 * time.Second
	often = 20 * time.Millisecond
)

// bed is a home cluster whose kube-scheduler calls an extender: with node names,
// or with whole nodes.
type bed struct {
	*testbed.Cluster
	clusters *remoteclusters.Client
	listener net.Listener
}

// beds are shared by the tests, which differ in their namespaces and remote
// clusters.
var beds = map[string]*bed{}

func TestMain(m *testing.M) {
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	names, nodes := &bed{}, &bed{}
	for _, b := range []*bed{names, nodes} {
		var err error
		if b.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("find a port for the extender: %w", err)
		}
	}
	wholeNodes, err := schedulerOfWholeNodes(nodes.url())
	if err != nil {
		return err
	}
	defer os.Remove(wholeNodes)
	started, err := testbed.Start(ctx,
		testbed.Config{Name: "names", Extenders: []string{names.url()}},
		testbed.Config{Name: "nodes", SchedulerConfig: wholeNodes})
	if err != nil {
		return err
	}
	names.Cluster, nodes.Cluster = started[0], started[1]
	for mode, b := range map[string]*bed{"names mode": names, "node mode": nodes} {
		if err := b.install(ctx); err != nil {
			return err
		}
		beds[mode] = b
	}
	return nil
}

func (b *bed) url() string { return "http://" + b.listener.Addr().String() }

func schedulerOfWholeNodes(url string) (string, error) {
	file, err := os.CreateTemp("", "scheduler-*.yaml")
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	_, err = fmt.Fprintf(file, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: %q, filterVerb: filter, prioritizeVerb: prioritize, preemptVerb: preempt, weight: 3, nodeCacheCapable: false, ignorable: true}
`, url)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	return file.Name(), nil
}

// install applies the manifests, plays two home nodes, and starts the extender
// with the rights of its ServiceAccount.
func (b *bed) install(ctx context.Context) error {
	if _, err := b.Kubectl(ctx, "", "apply", "-k", filepath.Join("..", "..", "deploy", "base")); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	var err error
	if b.clusters, err = remoteclusters.NewClient(b.AdminConfig()); err != nil {
		return err
	}
	if _, err = hollow.Start(ctx, hollow.Options{Config: b.AdminConfig(), Nodes: []hollow.Node{{Name: "home-1"}, {Name: "home-2"}}}); err != nil {
		return err
	}
	return b.run(ctx)
}

// run starts the extender and waits until it is ready.
func (b *bed) run(ctx context.Context) error {
	home, err := b.ServiceAccountConfig(ctx, system, "lodestone-extender")
	if err != nil {
		return err
	}
	status, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the probes: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, &app.Config{Home: home, Verbs: b.listener, Status: status})
	}()
	if err := awaitReady(ctx, "http://"+status.Addr().String()+"/readyz", ended); err != nil {
		return fmt.Errorf("start the extender: %w", err)
	}
	return nil
}

// virtualNode plays a node that stands for a remote cluster. No pod runs there:
// what counts is where kube-scheduler wants it.
func virtualNode(cluster string) hollow.Node {
	return hollow.Node{Name: "virtual-" + cluster, Labels: map[string]string{keys.Cluster: cluster}}
}
