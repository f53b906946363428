package fabric

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// virtualNodeAccount is the virtual node program's ServiceAccount, as
// deploy/components/virtual-node makes it.
const virtualNodeAccount = "lodestone-virtualnode"

// homeManifests returns what is applied at home.
func homeManifests(o Options) string {
	if o.VirtualNode {
		return filepath.Join(Root(), "e2e", "fabric", "manifests", "virtual-node")
	}
	return filepath.Join(Root(), "deploy", "base")
}

// StartVirtualNode starts the virtual node program at home with the rights of its
// ServiceAccount; the Fabric must have been started with VirtualNode. tune
// changes its flags, and its client, before the start.
func (f *Fabric) StartVirtualNode(ctx context.Context, tune ...func(*virtualnode.Config)) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, virtualNodeAccount)
	if err != nil {
		return nil, err
	}
	options := virtualnode.NewOptions()
	options.HTTPAddress = ""
	options.ProbeInterval = time.Second
	options.Heartbeat = time.Second
	options.NodeIP, options.KubeletAddress = "127.0.0.1", "127.0.0.1"
	options.KubeletPortsFrom = 0
	config := &virtualnode.Config{Options: *options, Home: home}
	for _, t := range tune {
		t(config)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, func(ctx context.Context) error { return virtualnode.Run(ctx, config) }), nil
}

// RunVirtualNode runs the virtual node program built at path as a process, under
// a name of its own, with the rights of its ServiceAccount and leader election,
// and waits until it is ready. A replica that does not lead is ready too.
func (f *Fabric) RunVirtualNode(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	return run(ctx, f.Home, name, path, System, virtualNodeAccount, append([]string{
		"--leader-elect=true", "--lease-duration=8s", "--probe-interval=1s", "--heartbeat-interval=1s",
		"--node-ip=127.0.0.1", "--kubelet-address=127.0.0.1", "--kubelet-ports-from=0", "--v=2"}, flags...)...)
}

// AwaitNode waits until a node of home has a status of its condition Ready and, if
// that is True, takes pods.
func (f *Fabric) AwaitNode(ctx context.Context, name string, status corev1.ConditionStatus) error {
	var last *corev1.Node
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		node, err := f.Home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it may not be there yet
		}
		last = node
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady && status == corev1.ConditionTrue {
				return false, nil
			}
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == status, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until node %s has Ready=%s (now %+v): %w", name, status, last, err)
	}
	return nil
}
