package pitfalls

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
)

const (
	deploy = "../../deploy/"
	system = "lodestone-system"
	class  = "lodestone"

	west     = "west"
	westNode = "virtual-west"

	long  = 60 * time.Second
	often = 20 * time.Millisecond
)

// homeNodes are the nodes of the home cluster itself.
var homeNodes = []string{"home-1", "home-2"}

// bed is a cluster of two home nodes and one that stands for cluster west, which is
// ready. It has no scheduler: each test starts those that it is about.
var bed *testbed.Cluster

func TestMain(m *testing.M) {
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	clusters, err := testbed.Start(ctx, testbed.Config{
		Name: "home",
		// Some tests have hundreds of nodes, whose leases are seldom renewed.
		NodeGracePeriod: time.Hour,
	})
	if err != nil {
		return err
	}
	bed = clusters[0]
	if err := bed.StopScheduler(ctx); err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "apply", "-k", deploy+"base"); err != nil {
		return err
	}
	if _, err := bed.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	// Without a taint, so that nothing but the data and the extender decides.
	nodes := []hollow.Node{{Name: westNode, Labels: map[string]string{keys.Cluster: west}}}
	for _, name := range homeNodes {
		nodes = append(nodes, hollow.Node{Name: name})
	}
	if _, err := hollow.Start(ctx, hollow.Options{Config: bed.AdminConfig(), Nodes: nodes, LeasePeriod: time.Minute}); err != nil {
		return err
	}
	return join(ctx)
}

// join makes cluster west known, as one that can take claims.
func join(ctx context.Context) error {
	client, err := remoteclusters.NewClient(bed.AdminConfig())
	if err != nil {
		return err
	}
	cluster, err := client.Create(ctx, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: west},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: west}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make cluster west known: %w", err)
	}
	cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}
	cluster.Status.StorageClasses = []v1alpha1.OfferedClass{{Name: "standard", Default: true}}
	if _, err := client.UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("make cluster west ready: %w", err)
	}
	return nil
}

// fromDeploy returns the path of a file in deploy/.
func fromDeploy(elements ...string) string {
	return filepath.Join(append([]string{deploy}, elements...)...)
}
