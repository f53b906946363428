package capacity

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
)

// running runs a controller on a cluster until the test ends. There are no remote clusters,
// so their informer is any that is empty.
func running(t *testing.T, c *cluster, withdraw bool) {
	t.Helper()
	metrics := NewMetrics(prometheus.NewRegistry())
	factory := informers.NewSharedInformerFactory(c, 0)
	room := New(Config{
		Client: c, Namespace: namespace, Withdraw: withdraw, Metrics: metrics,
		Classes: factory.Storage().V1().StorageClasses().Informer(), Capacities: factory.Storage().V1().CSIStorageCapacities().Informer(),
		Remotes: factory.Core().V1().Nodes().Informer(), Drivers: factory.Storage().V1().CSIDrivers().Informer(),
	})
	ctx, end := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	done := make(chan error, 1)
	go func() { done <- room.Run(ctx) }()
	t.Cleanup(func() {
		end()
		assert.NoError(t, <-done)
		factory.Shutdown()
	})
}

func becomes(t *testing.T, what string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, 20*time.Second, 5*time.Millisecond, what)
}

func TestAControllerFollowsWhatChanges(t *testing.T) {
	c := newCluster(t, virtual("v"), defaulted(real("std")), telling(true))
	running(t, c, false)
	becomes(t, "kube-scheduler is told", func() bool { return c.seen(t, World{}).asks() })
	assert.True(t, c.objects(t).hasRoom(t, "v", "1Pi", homeA))

	_, err := c.StorageV1().CSIStorageCapacities("driver").Create(t.Context(), told("std", "a", "1Gi", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	becomes(t, "a full zone has no room", func() bool { return !c.objects(t).hasRoom(t, "v", "5Gi", homeA) })
	_, err = c.StorageV1().CSIDrivers().Update(t.Context(), telling(false), metav1.UpdateOptions{})
	require.NoError(t, err)
	becomes(t, "its driver is not heeded any more", func() bool { return c.objects(t).hasRoom(t, "v", "5Gi", homeA) })
	_, err = c.StorageV1().StorageClasses().Create(t.Context(), virtual("later"), metav1.CreateOptions{})
	require.NoError(t, err)
	becomes(t, "a new class has room", func() bool { return c.objects(t).hasRoom(t, "later", "1Gi", homeA) })
	require.NoError(t, c.StorageV1().StorageClasses().Delete(t.Context(), "v", metav1.DeleteOptions{}))
	becomes(t, "what belongs to a class goes with it", func() bool { return !c.objects(t).hasRoom(t, "v", "1", homeA) })
}

func TestAControllerTriesAgainWhatFailed(t *testing.T) {
	c := newCluster(t, virtual("v"))
	c.fail = func(n int, _ clienttesting.Action) error {
		if n <= 3 {
			return errors.New("not now")
		}
		return nil
	}
	running(t, c, false)
	becomes(t, "kube-scheduler is told", func() bool { return c.seen(t, World{}).asks() })
}

func TestAControllerWithdraws(t *testing.T) {
	c := newCluster(t, virtual("v"))
	require.NoError(t, c.publisher(t).Publish(t.Context(), c.seen(t, before)))
	running(t, c, true)
	becomes(t, "all is gone", func() bool { return len(c.objects(t)) == 0 })
	assert.False(t, c.seen(t, World{}).asks())
}

// The driver reports a capacity for each of 5,000 nodes, and there are two virtual classes:
// the cost of one pass that writes nothing.
func BenchmarkLookAtFiveThousandNodes(b *testing.B) {
	w := World{Classes: []*storagev1.StorageClass{virtual("v"), virtual("w"), defaulted(real("std"))},
		Drivers: []*storagev1.CSIDriver{telling(true)}}
	for i := range 5000 {
		w.Capacities = append(w.Capacities, told("std", fmt.Sprintf("node-%d", i), "100Gi", ""))
	}
	have := published(w)
	b.ReportAllocs()
	for b.Loop() {
		if changes := Compare(Plan(w), have, namespace); len(changes.Create) > 0 {
			b.Fatal("something is to be written")
		}
	}
}
