package namespaces

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// grow makes the claim of use ask for a size.
func grow(t *testing.T, namespace, size string) {
	t.Helper()
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "data", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size), metav1.PatchOptions{})
	require.NoError(t, err)
}

// grown waits until the claim of use, its volume and its shadow have a size.
func grown(t *testing.T, namespace, size string) {
	t.Helper()
	var have [3]string
	await.Until(t, "claim, volume and shadow have "+size, func() bool {
		claim, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		volume, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
		require.NoError(t, err)
		shadow, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		have = [3]string{claim.Status.Capacity.Storage().String(), volume.Spec.Capacity.Storage().String(), shadow.Spec.Resources.Requests.Storage().String()}
		return have == [3]string{size, size, size}
	}, func() any { return have }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// TestAKillAtAnyWriteOfAnExpansionIsResumed also shows that the rights which the
// agent gives home are enough to expand.
func TestAKillAtAnyWriteOfAnExpansionIsResumed(t *testing.T) {
	namespace := space(t, "shop-", true)
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	grown(t, namespace, "1Gi")
	var killed atomic.Int64
	for writes := range int64(4) {
		require.NoError(t, running.Stop())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		k := &killer{kill: sync.OnceFunc(func() { killed.Add(1); cancel() })}
		k.left.Store(writes)
		program, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) {
			c.LeaderElect = false
			k.wrap(c.Home)
		})
		require.NoError(t, err)
		size := fmt.Sprintf("%dGi", writes+2)
		grow(t, namespace, size)
		_ = program.Wait() // killed at a write to home, or done after a while
		cancel()
		running, err = startProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		grown(t, namespace, size)
	}
	assert.GreaterOrEqual(t, killed.Load(), int64(2), "an expansion takes two writes at home at least")
	drop(t, namespace)
	await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", "True"))
}
