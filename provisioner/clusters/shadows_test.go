package clusters

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// A namespace that somebody deletes there is made anew, and home has no rights in it in
// between: a watch that ends then tries again half a minute later, and later.
func TestANamespaceThatIsGivenAgainIsWatchedAnewIfItsWatchWasForbidden(t *testing.T) {
	const namespace = "shop"
	for name, row := range map[string]struct {
		answer error
		anew   bool
	}{
		"rights were missing":         {answer: apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "", nil), anew: true},
		"the cluster did not answer":  {answer: errors.New("no answer")},
		"nothing happened to a watch": {},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			first := watch.NewRaceFreeFake()
			var wrong atomic.Bool
			client.PrependWatchReactor("persistentvolumeclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
				if wrong.Load() {
					return true, nil, row.answer
				}
				return true, first, nil
			})
			client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return wrong.Load(), &corev1.PersistentVolumeClaimList{}, row.answer
			})
			c := connect(t.Context(), "west", client, "here", Hooks{Shadow: func(*corev1.PersistentVolumeClaim) {}, Seen: func(string, string) {}}, []string{namespace}, func() {})
			before := c.watch(namespace)
			require.True(t, cache.WaitForCacheSync(t.Context().Done(), before.HasSynced))
			if row.answer != nil {
				wrong.Store(true)
				asked := len(client.Actions())
				first.Stop()
				require.Eventually(t, func() bool { return len(client.Actions()) > asked+1 }, 30*time.Second, time.Millisecond, "it is asked again")
			}
			c.watchAgain(namespace)
			if row.anew {
				require.Eventually(t, func() bool { c.watchAgain(namespace); return before != c.watch(namespace) }, 30*time.Second, time.Millisecond)
				return
			}
			assert.Same(t, before, c.watch(namespace), "what is known stays known")
		})
	}
}
