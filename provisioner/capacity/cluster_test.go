package capacity

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cluster is a home cluster in which requests can be made to fail.
type cluster struct {
	*fake.Clientset
	mu sync.Mutex
	// writes counts the writes; fail says what becomes of one, by its number and
	// what it is; check is called before each.
	writes int
	fail   func(n int, action clienttesting.Action) error
	check  func()
	// released counts how often waiting pods were to be woken.
	released int
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: keys.Driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(false)}}
	c := &cluster{Clientset: fake.NewClientset(append(objects, driver)...)}
	c.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "list" || action.GetVerb() == "get" {
			return false, nil, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes++
		if c.check != nil {
			c.check()
		}
		if c.fail != nil {
			if err := c.fail(c.writes, action); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	return c
}

func (c *cluster) publisher(t *testing.T) *Publisher {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	return &Publisher{client: c, namespace: namespace, metrics: metrics, released: func() { c.released++ }}
}

func (c *cluster) objects(t *testing.T) scheduler {
	t.Helper()
	list, err := c.Tracker().List(storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"), storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"), namespace)
	require.NoError(t, err)
	typed, ok := list.(*storagev1.CSIStorageCapacityList)
	require.True(t, ok)
	all := make(scheduler, len(typed.Items))
	for i := range typed.Items {
		all[i] = &typed.Items[i]
	}
	return all
}

func (c *cluster) seen(t *testing.T, w World) Seen {
	t.Helper()
	driver, err := c.Tracker().Get(storagev1.SchemeGroupVersion.WithResource("csidrivers"), "", keys.Driver)
	if apierrors.IsNotFound(err) {
		return Seen{World: w, Published: c.objects(t)}
	}
	require.NoError(t, err)
	typed, ok := driver.(*storagev1.CSIDriver)
	require.True(t, ok)
	return Seen{World: w, Published: c.objects(t), Driver: typed}
}
