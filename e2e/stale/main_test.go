// Package stale tests what the extender does while it cannot see what happens in
// the cluster: it answers from what it knew, says so, and catches up by itself.
package stale_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/line"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
)

const (
	system   = "lodestone-system"
	homeNode = "home-1"
	westNode = "virtual-west"
)

// bed is a home cluster and an extender, with a line between the two. Its tests
// take turns.
var bed struct {
	*testbed.Cluster
	line          *line.Line
	verbs, status string
}

func TestMain(m *testing.M) {
	// How long a connection may be silent before its other end is asked for a sign
	// of life, and for how long that may take: 30 and 15 unless told otherwise.
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if err := os.Setenv(name, "1"); err != nil {
			panic(err)
		}
	}
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"})
	if err != nil {
		return err
	}
	bed.Cluster = clusters[0]
	if _, err := bed.Kubectl(ctx, "", "apply", "-k", filepath.Join("..", "..", "deploy", "base")); err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	if err := furnish(ctx); err != nil {
		return err
	}
	return run(ctx)
}

// furnish makes a node at home, and west with its virtual node.
func furnish(ctx context.Context) error {
	for _, node := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: homeNode}},
		{ObjectMeta: metav1.ObjectMeta{Name: westNode, Labels: map[string]string{keys.Cluster: "west"}}},
	} {
		if _, err := bed.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", node.Name, err)
		}
	}
	clusters, err := remoteclusters.NewClient(bed.AdminConfig())
	if err != nil {
		return err
	}
	west, err := clusters.Create(ctx, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "west"},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: "west"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make west: %w", err)
	}
	west.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
	west.Status.StorageClasses = []v1alpha1.OfferedClass{{Name: "standard", Default: true}}
	if _, err = clusters.UpdateStatus(ctx, west, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that west is ready: %w", err)
	}
	return nil
}

// run starts the extender with the rights of its ServiceAccount.
func run(ctx context.Context) error {
	home, err := bed.ServiceAccountConfig(ctx, system, "lodestone-extender")
	if err != nil {
		return err
	}
	if bed.line, err = line.New(ctx, strings.TrimPrefix(home.Host, "https://")); err != nil {
		return err
	}
	home.Host = bed.line.URL()
	var listen net.ListenConfig
	verbs, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the extender: %w", err)
	}
	status, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the probes: %w", err)
	}
	bed.verbs, bed.status = "http://"+verbs.Addr().String(), "http://"+status.Addr().String()
	go func() {
		if err := app.Run(ctx, &app.Config{Home: home, Verbs: verbs, Status: status, MaxStaleness: time.Second}); err != nil {
			fmt.Fprintln(os.Stderr, "the extender ended:", err)
		}
	}()
	return nil
}
