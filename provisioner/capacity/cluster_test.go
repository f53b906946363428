package capacity

import (
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cluster is a fake home cluster in which requests can be made to fail.
type cluster struct {
	*fake.Clientset
	mu sync.Mutex
	// writes counts the writes; fail decides the result of a write from its number and
	// kind; check is called before each.
	writes int
	fail   func(n int, action clienttesting.Action) error
	check  func()
	// released counts the calls of released.
	released int
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: keys.Driver},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(false)}}
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
	metrics := NewMetrics(prometheus.NewRegistry())
	return &Publisher{client: c, namespace: namespace, metrics: metrics, released: []func(){func() { c.released++ }}}
}

func (c *cluster) objects(t *testing.T) scheduler {
	t.Helper()
	list, err := c.Tracker().List(storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"),
		storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"), namespace)
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

const namespace = "lodestone-system"

func virtual(name string, parameters ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{},
	}
	for i := 0; i < len(parameters); i += 2 {
		class.Parameters[parameters[i]] = parameters[i+1]
	}
	return class
}

func real(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "disk.example.com"}
}

// zonal is a real class whose volumes are in one zone, and in none by its second term.
func zonal(name, zone string) *storagev1.StorageClass {
	class := real(name)
	class.AllowedTopologies = []corev1.TopologySelectorTerm{
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"z", zone}}}}, {},
	}
	return class
}

func defaulted(class *storagev1.StorageClass) *storagev1.StorageClass {
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	return class
}

// telling is the CSIDriver of real classes; heeded is its storageCapacity.
func telling(heeded bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"},
		Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(heeded)}}
}

// told is a driver's capacity for the nodes of a zone; sizes may be empty.
func told(class, zone, free, largest string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:        metav1.ObjectMeta{Namespace: "driver", Name: class + "-" + zone},
		StorageClassName:  class,
		NodeTopology:      &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}},
		Capacity:          size(free),
		MaximumVolumeSize: size(largest),
	}
}

func size(s string) *resource.Quantity {
	if s == "" {
		return nil
	}
	return ptr.To(resource.MustParse(s))
}

func remote(name string, offered ...v1alpha1.OfferedClass) *v1alpha1.RemoteCluster {
	return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RemoteClusterStatus{StorageClasses: offered}}
}

func offer(name, free, largest string) v1alpha1.OfferedClass {
	return v1alpha1.OfferedClass{Name: name, Free: size(free), MaximumVolumeSize: size(largest)}
}

// scheduler does what kube-scheduler does with capacities.
type scheduler []*storagev1.CSIStorageCapacity

func (s scheduler) hasRoom(t *testing.T, class, request string, node map[string]string) bool {
	t.Helper()
	wanted := resource.MustParse(request)
	return slices.ContainsFunc(s, func(capacity *storagev1.CSIStorageCapacity) bool {
		limit := capacity.MaximumVolumeSize
		if limit == nil {
			limit = capacity.Capacity
		}
		if capacity.StorageClassName != class || limit == nil || limit.Value() < wanted.Value() || capacity.NodeTopology == nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(capacity.NodeTopology)
		require.NoError(t, err)
		return selector.Matches(labels.Set(node))
	})
}

func published(w World) scheduler {
	return Compare(Plan(w), nil, namespace).Create
}

func node(pairs ...string) map[string]string {
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	return set
}
